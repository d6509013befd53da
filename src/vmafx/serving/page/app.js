"use strict";
// The page of `vmafx serve`: uploads two clips, follows their job, and lists recent ones. Uses `element` of report.js.
{
  const PARTS = ["reference", "distorted"];
  const PAGE_TITLE = document.title;
  const LIST_LENGTH = 20;
  const LIST_INTERVAL = 3000; // milliseconds
  const RAW = /\.(yuv|raw|rgb|gray)$/i;
  const ORIGINAL = /(^|[^a-z])(ref|reference|orig|original|src|source|master|mezzanine|pristine|lossless)([^a-z]|$)/i;
  const SWITCHES = ["shortest", "conform", "stretch", "damaged"];
  const STAGES = { fetching: "Downloading", reading: "Probing", waiting: "Waiting", scoring: "Scoring" };
  const FAULTS = {
    reference: "The reference cannot be used", distorted: "The distorted clip cannot be used",
    model: "The model cannot be used", options: "An option is not valid",
  };

  const get = (id) => document.getElementById(id);
  const fileOf = (part) => get(`${part}-file`).files[0];
  const uriOf = (part) => get(`${part}-uri`).value.trim();
  const lastPart = (uri) => uri.split("/").pop() || uri;
  const nameOf = (part) => fileOf(part)?.name ?? lastPart(uriOf(part).split(/[?#]/)[0]);

  // Numbers as people read them.
  const bytes = (count) => {
    const units = ["bytes", "kB", "MB", "GB", "TB"];
    const power = Math.min(Math.floor(Math.log10(Math.max(count, 1)) / 3), units.length - 1);
    return `${(count / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
  };
  const duration = (seconds) => {
    const whole = Math.ceil(seconds);
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
  };
  const count = (number) => number.toLocaleString("en");
  const score = (value) => value.toFixed(2);

  const announce = (text) => { get("announcement").textContent = text; };
  // Moves the focus, unless the user is busy elsewhere on the page.
  const isFree = () => document.activeElement === document.body || get("job").contains(document.activeElement);

  // Problems, as the server describes them (RFC 9457) or as the error of a job.
  const hideProblem = () => {
    get("problem").hidden = true;
    for (const node of document.querySelectorAll("[aria-invalid]")) node.removeAttribute("aria-invalid");
  };
  const showProblem = ({ title = "", detail, part = "", remedy = "" }, { focus = true } = {}) => {
    get("problem-title").textContent = title || FAULTS[part] || "The clips were not scored";
    get("problem-detail").textContent = detail;
    get("problem-remedy").replaceChildren(...remedyNodes(remedy));
    if (PARTS.includes(part)) get(`${part}-${uriOf(part) ? "uri" : "file"}`).setAttribute("aria-invalid", "true");
    get("problem").hidden = false;
    if (focus) get("problem").focus();
    else announce(`${get("problem-title").textContent}: ${detail}`);
  };
  // The remedy with a link to each option of the form that it names.
  const remedyNodes = (remedy) => {
    if (!remedy) return [];
    const pieces = `${remedy[0].toUpperCase()}${remedy.slice(1)}`.split(/options\.(\w+)/);
    return pieces.map((piece, index) => {
      const control = index % 2 ? get(piece) : null;
      if (!control) return document.createTextNode(piece);
      const link = element("a", "", `“${control.labels[0].textContent.trim()}”`);
      link.href = `#${piece}`;
      link.addEventListener("click", (event) => {
        event.preventDefault();
        get("options").open = true;
        control.focus();
      });
      return link;
    });
  };
  const problemOf = (status, body, retryAfter) => {
    const known = body && typeof body === "object" ? body : {};
    const wait = [429, 503].includes(status) && retryAfter ? `Try again in ${duration(Number(retryAfter))}.` : "";
    return { detail: known.detail ?? `The server answered with status ${status}.`, part: known.part, remedy: known.remedy ?? wait };
  };

  // Requests. A server that asks for credentials gets them once, and the browser keeps them in a cookie.
  let signingIn = null;
  const signIn = () => {
    signingIn ??= new Promise((resolve) => {
      const before = document.activeElement;
      const form = get("sign-in-form"), key = get("key"), wrong = get("key-problem");
      get("sign-in").hidden = false;
      key.focus();
      form.onsubmit = async (event) => {
        event.preventDefault();
        const response = await fetch("/v1/session", { method: "POST", headers: { Authorization: `Bearer ${key.value.trim()}` } })
          .catch(() => null);
        if (response?.ok) {
          key.value = wrong.textContent = "";
          key.removeAttribute("aria-invalid");
          get("sign-in").hidden = true;
          signingIn = null;
          (before === document.body ? get("reference-file") : before).focus();
          resolve();
          return;
        }
        wrong.textContent = response ? (await readProblem(response)).detail : "The server does not answer.";
        key.setAttribute("aria-invalid", "true");
        key.focus();
      };
    });
    return signingIn;
  };
  const readProblem = async (response) =>
    problemOf(response.status, await response.json().catch(() => null), response.headers.get("Retry-After"));
  // The JSON of a response; throws a problem.
  const request = async (path, options = {}) => {
    while (true) {
      const response = await fetch(path, options).catch(() => { throw { detail: "The server does not answer." }; });
      if (response.ok) return response.json();
      if (response.status !== 401) throw await readProblem(response);
      await signIn();
    }
  };
  let upload = null; // the XMLHttpRequest of a form: fetch does not report the progress of uploads
  const send = (form, onProgress) => new Promise((resolve, reject) => {
    upload = new XMLHttpRequest();
    upload.open("POST", "/v1/score");
    upload.setRequestHeader("Prefer", "respond-async");
    upload.responseType = "json";
    upload.upload.onprogress = onProgress;
    upload.onload = () => upload.status < 300
      ? resolve(upload.response)
      : reject({ status: upload.status, ...problemOf(upload.status, upload.response, upload.getResponseHeader("Retry-After")) });
    upload.onerror = () => reject({
      detail: "The connection ended during the upload. The server may have refused it, for example because a clip is too large.",
    });
    upload.onabort = () => reject(null);
    upload.send(form);
  });

  // The form.
  const update = () => {
    for (const part of PARTS) {
      const file = fileOf(part);
      get(`${part}-chosen`).textContent = file ? bytes(file.size) : "";
      document.querySelector(`[data-format="${part}"]`).hidden = !RAW.test(nameOf(part));
    }
  };
  const choose = (part, file) => {
    const transfer = new DataTransfer();
    transfer.items.add(file);
    get(`${part}-file`).files = transfer.files;
    get(`${part}-uri`).value = "";
  };
  const chooseBoth = (first, second) => {
    const named = [first, second].map((file) => ORIGINAL.test(file.name));
    const byName = named[0] !== named[1];
    const swapped = byName ? named[1] : second.size > first.size;
    const [reference, distorted] = swapped ? [second, first] : [first, second];
    choose("reference", reference);
    choose("distorted", distorted);
    const reason = byName ? "by its name" : "because it is larger";
    get("guess").textContent = `Took ${reference.name} as the reference, ${reason}. If that is wrong, swap the clips.`;
  };
  const take = (files, part) => {
    hideProblem();
    get("guess").textContent = "";
    if (files.length === 2) chooseBoth(...files);
    else if (files.length === 1) choose(part ?? (fileOf("reference") || uriOf("reference") ? "distorted" : "reference"), files[0]);
    else showProblem({ title: "Drop one or two clips", detail: `These are ${files.length} files. A score compares two clips.` });
    update();
  };
  const filesIn = (transfer) => {
    const folders = Array.from(transfer.items).filter((item) => item.webkitGetAsEntry?.()?.isDirectory);
    if (!folders.length) return Array.from(transfer.files);
    showProblem({ title: "Drop files, not folders", detail: "A folder cannot be scored." });
    return null;
  };
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const zoneAt = (event) => event.target.closest?.("[data-part]");
  const mark = (zone) => {
    for (const drop of document.querySelectorAll(".drop")) drop.classList.toggle("target", drop.parentElement === zone);
  };
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    document.body.classList.add("over");
    mark(zoneAt(event));
  });
  const endDrag = () => {
    document.body.classList.remove("over");
    mark(null);
  };
  addEventListener("dragleave", (event) => event.relatedTarget === null && endDrag());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    endDrag();
    const files = filesIn(event.dataTransfer);
    if (files) take(files, zoneAt(event)?.dataset.part);
  });
  for (const part of PARTS) {
    get(`${part}-file`).addEventListener("change", () => {
      get(`${part}-uri`).value = "";
      get("guess").textContent = "";
      update();
    });
    get(`${part}-uri`).addEventListener("input", () => {
      get(`${part}-file`).value = "";
      update();
    });
  }
  get("distorted-pixels").append(...get("reference-pixels").cloneNode(true).children);
  get("swap").addEventListener("click", () => {
    const swap = (one, other, name) => { [one[name], other[name]] = [other[name], one[name]]; };
    const [reference, distorted] = PARTS.map((part) => [get(`${part}-file`), get(`${part}-uri`)]);
    swap(reference[0], distorted[0], "files");
    swap(reference[1], distorted[1], "value");
    const formats = PARTS.map((part) => document.querySelectorAll(`[data-format="${part}"] [data-name]`));
    formats[0].forEach((field, index) => swap(field, formats[1][index], "value"));
    get("guess").textContent = nameOf("reference") && nameOf("distorted") ? `${nameOf("reference")} is the reference now.` : "";
    update();
  });

  const rawFormat = (part) => {
    const fields = document.querySelectorAll(`[data-format="${part}"] [data-name]`);
    const values = Array.from(fields).filter((field) => field.value).map((field) => [
      field.dataset.name, field.type === "number" ? Number(field.value) : field.value,
    ]);
    return Object.fromEntries(values);
  };
  const spec = () => {
    const features = Array.from(document.querySelectorAll("[name=feature]:checked"), (box) => box.value);
    const options = { pooling: get("pooling").value, subsample: Number(get("subsample").value || 1), features };
    if (get("size").value.trim()) options.size = get("size").value.trim().replace(/\s*[x×]\s*/i, "x");
    for (const name of SWITCHES) if (get(name).checked) options[name] = true;
    const asked = { options };
    if (get("model").value) asked.model = get("model").value;
    for (const part of PARTS) if (RAW.test(nameOf(part))) asked[`${part}Format`] = rawFormat(part);
    return asked;
  };
  const findFault = () => {
    const missing = PARTS.find((part) => !fileOf(part) && !uriOf(part));
    if (missing) {
      const clip = missing === "reference" ? "reference" : "distorted clip";
      return { title: `The ${clip} is missing`, detail: "Choose its file, or enter its URI.", part: missing };
    }
    const incomplete = PARTS.find((part) => RAW.test(nameOf(part)) && !(rawFormat(part).width && rawFormat(part).height));
    if (incomplete) {
      const detail = "Raw video has no header: enter its width, height and pixel format.";
      return { title: "The format of the raw video is missing", detail, part: incomplete };
    }
    return null;
  };
  const formData = () => {
    const data = new FormData();
    data.append("spec", JSON.stringify(spec()));
    for (const part of PARTS) data.append(part, fileOf(part) ?? uriOf(part));
    return data;
  };

  // The job that is shown.
  let events = null; // its EventSource
  let shown = ""; // its ID
  let announced = "";
  const showPanel = (title, clips) => {
    hideProblem();
    get("job-title").textContent = title;
    get("job-clips").textContent = clips;
    get("running").hidden = false;
    get("scored").hidden = true;
    get("job").hidden = false;
  };
  const showProgress = (stage, pace, done, total) => {
    const bar = get("bar");
    if (total) Object.assign(bar, { max: total, value: Math.min(done, total) });
    else bar.removeAttribute("value");
    get("stage").textContent = stage;
    get("pace").textContent = pace;
    const percent = total ? Math.floor(100 * Math.min(done / total, 1)) : null;
    document.title = percent === null ? PAGE_TITLE : `${percent} % · ${PAGE_TITLE}`;
    // A screen reader hears each stage and each quarter, not each number.
    const step = `${stage.split(" ")[0]} ${percent === null ? "" : Math.floor(percent / 25)}`;
    if (step !== announced) announce([stage, pace].filter(Boolean).join(", "));
    announced = step;
  };
  const showJob = (job) => {
    showPanel(job.state === "queued" ? "Waiting in the queue" : "Scoring", `${job.distorted} against ${job.reference}, ${job.model}`);
    if (job.state === "queued") {
      const before = job.position ? `${count(job.position)} ${job.position === 1 ? "job comes" : "jobs come"} first` : "Next in the queue";
      const start = job.expectedStartSeconds === undefined ? "" : `starts in about ${duration(job.expectedStartSeconds)}`;
      showProgress(before, start);
      return;
    }
    const { stage = "", done = 0, total, fps = 0, eta } = job.progress ?? {};
    const unit = stage === "fetching" ? bytes : count;
    const what = stage === "fetching" ? "" : " frames";
    const amount = total ? ` ${unit(done)} of ${unit(total)}${what}` : done ? ` ${unit(done)}${what}` : "";
    const pace = [fps ? `${fps.toFixed(fps < 10 ? 1 : 0)} fps` : "", eta === undefined || eta === null ? "" : `${duration(eta)} left`];
    showProgress(`${STAGES[stage] ?? "Starting"}${amount}`, pace.filter(Boolean).join(", "), done, total);
  };
  const showScore = (value, page) => {
    get("running").hidden = true;
    get("scored").hidden = false;
    get("result").textContent = score(value);
    get("report").href = page;
    for (const link of document.querySelectorAll("[data-report]")) {
      link.href = `/v1${page}/report.${link.dataset.report}`;
      link.download = "";
    }
    document.title = `VMAF ${score(value)} · ${PAGE_TITLE}`;
    announce(`VMAF ${score(value)}`);
    if (isFree()) get("report").focus();
  };
  const endJob = (job) => {
    const focus = isFree();
    showJob(job);
    get("job-title").textContent = "Scored";
    shown = announced = "";
    document.title = PAGE_TITLE;
    if (job.state === "succeeded") showScore(job.score, job.links.page);
    else if (job.state === "failed") {
      get("job").hidden = true;
      const { message, part, remedy } = job.error;
      showProblem({ detail: message, part, remedy }, { focus });
    } else {
      get("job-title").textContent = "Cancelled";
      get("running").hidden = true;
      announce("The job was cancelled.");
      if (focus) get("job").focus();
    }
    refresh();
  };
  const stopFollowing = () => {
    events?.close();
    events = null;
  };
  const follow = (id) => {
    stopFollowing();
    shown = id;
    announced = "";
    const source = events = new EventSource(`/v1/jobs/${id}/events`);
    source.addEventListener("job", (event) => showJob(JSON.parse(event.data)));
    source.addEventListener("done", (event) => {
      stopFollowing();
      endJob(JSON.parse(event.data));
    });
    source.addEventListener("error", async (event) => {
      if (!event.data && source.readyState !== EventSource.CLOSED) {
        showProgress("The connection was lost; connecting again", "");
        return; // the browser does that
      }
      stopFollowing();
      try { // says why, and asks for credentials if they are missing
        const job = await request(`/v1/jobs/${id}`);
        if (shown !== id) return;
        if (event.data) throw problemOf(0, JSON.parse(event.data));
        showJob(job);
        setTimeout(() => shown === id && follow(id), LIST_INTERVAL);
      } catch (problem) {
        get("job").hidden = true;
        showProblem({ title: "The job cannot be shown", ...problem });
      }
    });
  };
  // A report whose address was opened without credentials.
  const openReport = async (key) => {
    try {
      await request(`/v1/results/${key}`);
      location.replace(`/results/${key}`);
    } catch (problem) {
      showProblem({ title: "The report cannot be opened", ...problem });
    }
  };
  // Shows the job that the address names, unless an upload is shown.
  const followAddress = () => {
    const report = /^#result-([0-9a-f]{64})$/.exec(location.hash);
    if (report) openReport(report[1]);
    const found = /^#job-([0-9a-f]{32})$/.exec(location.hash);
    if (!found || upload) return;
    if (found[1] !== shown) {
      showPanel("Loading the job", "");
      showProgress("Loading", "");
      follow(found[1]);
    }
    get("job").focus();
  };
  const setAddress = (hash) => history.replaceState(null, "", `${location.pathname}${hash}`);

  const submit = async () => {
    await request("/v1/models"); // asks for credentials before gigabytes are sent in vain
    const data = formData(), title = PARTS.some(fileOf) ? "Uploading" : "Sending";
    stopFollowing();
    shown = announced = "";
    setAddress("");
    showPanel(title, `${nameOf("distorted")} against ${nameOf("reference")}`);
    showProgress(title, "");
    get("job").focus();
    const started = performance.now();
    const onProgress = ({ loaded, total }) => {
      if (loaded >= total) {
        showProgress("Waiting for the server", "");
        return;
      }
      const rate = loaded / (performance.now() - started) * 1000;
      const left = rate ? `, ${duration((total - loaded) / rate)} left` : "";
      showProgress(`Uploading ${bytes(loaded)} of ${bytes(total)}`, `${bytes(rate)}/s${left}`, loaded, total);
    };
    while (true) {
      try {
        const answer = await send(data, onProgress);
        if (answer.state === undefined) { // these clips were scored before
          get("job-title").textContent = "Scored before";
          showScore(answer.score, answer.links.page);
        } else {
          setAddress(`#job-${answer.id}`);
          showJob(answer);
          follow(answer.id);
        }
        return;
      } catch (problem) {
        if (problem?.status !== 401) throw problem;
        await signIn();
      }
    }
  };
  get("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (get("submit").getAttribute("aria-disabled") === "true") return;
    hideProblem();
    const fault = findFault();
    if (fault) {
      showProblem(fault);
      return;
    }
    get("submit").setAttribute("aria-disabled", "true");
    try {
      await submit();
    } catch (problem) {
      get("job").hidden = true;
      if (problem instanceof Error) throw problem;
      if (problem) showProblem(problem);
      else {
        announce("The upload was cancelled.");
        get("submit").focus();
      }
      document.title = PAGE_TITLE;
    } finally {
      upload = null;
      get("submit").removeAttribute("aria-disabled");
      refresh();
    }
  });
  get("cancel").addEventListener("click", async () => {
    if (upload) {
      upload.abort();
      return;
    }
    if (!shown) return;
    try {
      await request(`/v1/jobs/${shown}/cancel`, { method: "POST" });
    } catch (problem) {
      showProblem({ title: "The job was not cancelled", ...problem });
    }
  });

  // Recent jobs. Each keeps its elements while it changes, so that the focus stays where it is.
  const items = new Map(); // by ID
  const addItem = (job) => {
    const item = element("li", ""), link = element("a", ""), about = element("span", "about"), state = element("span", "state");
    item.append(link, state, about);
    items.set(job.id, item);
    return item;
  };
  const updateItem = (item, job) => {
    const [link, state, about] = item.children;
    const when = new Date(job.finishedAt ?? job.createdAt);
    const percent = job.progress?.total ? ` ${Math.floor(100 * job.progress.done / job.progress.total)} %` : "";
    const texts = [
      [link, lastPart(job.distorted)],
      [state, job.state === "succeeded" ? score(job.score) : `${job.state}${percent}`],
      [about, `against ${lastPart(job.reference)}, ${job.model}, ${when.toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })}`],
    ];
    for (const [node, text] of texts) if (node.textContent !== text) node.textContent = text;
    const target = job.links.page ?? `#job-${job.id}`;
    if (link.getAttribute("href") !== target) link.href = target;
    item.title = `${job.distorted} against ${job.reference}`;
    item.dataset.state = job.state;
  };
  const showJobs = (jobs) => {
    const list = get("jobs"), known = new Set(jobs.map((job) => job.id));
    for (const [id, item] of items) {
      if (known.has(id)) continue;
      item.remove();
      items.delete(id);
    }
    jobs.forEach((job, index) => {
      const item = items.get(job.id) ?? addItem(job);
      updateItem(item, job);
      if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
    });
    list.hidden = !jobs.length;
    get("no-jobs").hidden = jobs.length > 0;
  };
  let timer = 0, refreshing = false;
  const refresh = async () => {
    clearTimeout(timer);
    if (document.hidden || refreshing) return;
    refreshing = true;
    try {
      showJobs((await request(`/v1/jobs?limit=${LIST_LENGTH}`)).jobs);
    } catch { // the list stays as it is until the server answers again
    } finally {
      refreshing = false;
      timer = setTimeout(refresh, LIST_INTERVAL);
    }
  };
  document.addEventListener("visibilitychange", refresh);

  const loadModels = async () => {
    const { models } = await request("/v1/models");
    get("model").replaceChildren(...models.map((model) => {
      const notes = [model.default ? "default" : "", model.learned ? `learned from ${model.base}` : ""].filter(Boolean);
      const option = element("option", "", notes.length ? `${model.name} (${notes.join(", ")})` : model.name);
      option.value = model.default ? "" : model.name;
      return option;
    }));
  };
  addEventListener("hashchange", followAddress);
  get("jobs").addEventListener("click", (event) => {
    const target = event.target.closest("a")?.getAttribute("href") ?? "";
    if (!target.startsWith("#")) return;
    event.preventDefault(); // a job that is shown already has no other address
    setAddress(target);
    followAddress();
  });
  update(); // the browser may have kept the fields of before
  loadModels().catch((problem) => showProblem({ title: "The models cannot be listed", ...problem }, { focus: false }));
  refresh();
  followAddress();
}
