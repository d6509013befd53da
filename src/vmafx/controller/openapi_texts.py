"""The descriptions and examples in the OpenAPI document; each example matches its schema."""

from typing import Any, NamedTuple

JOB_ID = "ID of the job, from its submission, or of one of its attempts."
NAMESPACE = "Namespace of the job; empty: any that the caller may search."
SESSION_TOKEN = "The session token from RegisterNode."  # noqa: S105 - a text
NODE_ID = "ID of the node: its namespace, `/` and its name."
FIELDS = {
    "ScoringParams": {
        "reference": "The clip to compare with: a URI, or an absolute path on the nodes.",
        "distorted": "The clip to be scored: a URI, or an absolute path on the nodes.",
        "model": "VMAF model; empty: vmaf_v0.6.1.",
        "backend": "Kind of device to score on: cpu, cuda, hip, sycl or metal; empty: any.",
    },
    "Progress": {
        "frames": "Frames scored so far.",
        "totalFrames": "Frames of the clip; 0: unknown.",
        "fps": "Frames scored per second.",
    },
    "RunningJobs": {"jobs": "The attempts that the agent is running."},
    "RunningJob": {"id": "ID of the attempt, from PullWork.", "name": "Name of the VmafxJob."},
    "Job": {
        "id": "ID of the job as in the request, else the UID of its VmafxJob.",
        "status": "State of the job.",
        "scoring": "What is scored, as it was submitted.",
        "partialResults": "Not used; always empty.",
        "assignedNode": "Name of the node that the job is placed on; empty: none yet.",
        "error": "Why the job failed or was cancelled.",
        "createdAt": "When the job was created, in Unix seconds.",
        "updatedAt": "When its state last changed, in Unix seconds.",
        "finalScore": "The VMAF score; left out unless the job is COMPLETED.",
        "namespace": "Namespace of the VmafxJob.",
        "name": "Name of the VmafxJob.",
        "work": "For agents: the attempt as JSON.",
        "progress": "Progress of a running job.",
        "features": "The mean of each feature over all frames.",
        "reason": "Reason of the condition that explains why the job waits or failed, such as NoHealthyNode.",
        "samplesToken": "For agents: the token for PushSamples; empty: samples are not wanted.",
        "createTime": "createdAt as RFC 3339; left out if it is 0.",
        "updateTime": "updatedAt as RFC 3339; left out if it is 0.",
    },
    "NodeCapability": {
        "gpuVendor": "Vendor of the GPU: nvidia, amd, intel or apple, or cpu.",
        "backends": "The backends that the agent can score on.",
        "concurrency": "Jobs that the agent can run at the same time.",
    },
    "SubmitJobRequest": {
        "scoring": "What to score.",
        "namespace": "Namespace of the new job; empty: the controller's default.",
        "name": "Name of the new VmafxJob; empty: generated.",
        "spec": "Further fields of the VmafxJob's spec, as a JSON object in a string.",
    },
    "SubmitJobResponse": {
        "jobId": "ID of the job, for the other calls.",
        "namespace": "Namespace of the VmafxJob.",
        "name": "Name of the VmafxJob.",
    },
    "GetJobRequest": {"jobId": JOB_ID, "namespace": NAMESPACE},
    "CancelJobRequest": {"jobId": JOB_ID, "namespace": NAMESPACE},
    "CancelJobResponse": {
        "ok": "False if the job has already succeeded or failed.",
        "message": "What happened, if there is something to say.",
    },
    "StreamJobsRequest": {
        "statusFilter": "The states of the jobs; empty: all.",
        "namespace": "Empty: the controller's default namespace; `*`: all that it serves.",
    },
    "ListJobsResponse": {
        "jobs": "The jobs of the page; with a filter it may have fewer than its limit, or none.",
        "continue": "The `continue` of the next page; empty: this is the last one.",
    },
    "RegisterNodeRequest": {
        "name": "Name of the VmafxNode.",
        "capability": "What the machine can do.",
        "namespace": "Namespace of the node; empty: the controller's default.",
        "device": "Description of the device, for display.",
        "fps": "Measured throughput in frames per second; 0: not measured.",
        "labels": "Labels of the VmafxNode, if it is created.",
    },
    "RegisterNodeResponse": {
        "nodeId": NODE_ID,
        "sessionToken": "The token of the new session.",
        "capacity": "Capacity of the VmafxNode, which may differ from capability.concurrency.",
        "message": "For the agent's log: what was accepted only in part.",
    },
    "HeartbeatRequest": {
        "nodeId": NODE_ID,
        "sessionToken": SESSION_TOKEN,
        "jobsRunning": "The number of running jobs, of an agent that does not send runningJobIds.",
        "runningJobIds": "The attempts that the agent is running.",
        "draining": "The agent takes no new jobs.",
    },
    "HeartbeatResponse": {
        "ok": "False: register again.",
        "stopJobIds": "Attempts to stop: cancelled, suspended, deleted, or placed on another node.",
        "superseded": "With ok = false: another agent has registered under this name.",
        "capacity": "Capacity of the VmafxNode.",
    },
    "PullWorkRequest": {
        "nodeId": NODE_ID,
        "sessionToken": SESSION_TOKEN,
        "capability": "What the machine can do.",
        "runningJobIds": "The attempts that the agent is running.",
        "waitSeconds": "Seconds to wait for a job, at most 60; 0: reply at once.",
    },
    "PullWorkResponse": {
        "job": "The attempt to run; left out if there is none.",
        "stopJobIds": "Attempts to stop, as in a heartbeat.",
    },
    "ReportResultRequest": {
        "nodeId": NODE_ID,
        "sessionToken": SESSION_TOKEN,
        "jobId": "ID of the attempt, from PullWork.",
        "final": "Whether this is the result; else it is progress.",
        "score": "Of an old agent: the VMAF score.",
        "features": "Of an old agent: the mean of each feature.",
        "partialScores": "Of an old agent: the scores of the frames so far, which are counted.",
        "error": "Of an old agent: why the attempt failed.",
        "answer": "With final: the worker's result as JSON.",
        "progress": "Without final: the progress.",
        "name": "Name of the VmafxJob.",
    },
    "ReportResultResponse": {"ok": "False: rejected, since this is not the job's current attempt."},
    "PushSamplesRequest": {
        "nodeId": f"{NODE_ID} Left out by a worker Pod.",
        "sessionToken": f"{SESSION_TOKEN} Left out by a worker Pod.",
        "samplesToken": "The token of the attempt: samplesToken of its job, or the Pod's VMAFX_SAMPLES_TOKEN.",
        "samples": "The samples of the attempt, at most 64 KiB.",
    },
    "PushSamplesResponse": {
        "result": "Whether trainings have the samples, and if not, whether to push them again.",
        "message": "Why, if the result is REFUSED or RETRY.",
    },
}


class Example(NamedTuple):
    """Of one call; a GET has no body, and its response may be one object of a stream."""

    response: dict[str, Any]
    request: dict[str, Any] | None = None


UID, ATTEMPT, NODE = "9f6b6c1e-5a3f-4c5b-8d43-0a7f3f0f2b11", "9f6b6c1e-5a3f-4c5b-8d43-0a7f3f0f2b11-0", "video/gpu-1"
SCORING = {
    "reference": "s3://clips/reference.mp4",
    "distorted": "s3://clips/encode.mp4",
    "model": "vmaf_v0.6.1",
    "backend": "",
}
JOB: dict[str, Any] = {
    "id": UID,
    "status": "COMPLETED",
    "scoring": SCORING,
    "partialResults": [],
    "assignedNode": "gpu-1",
    "error": "",
    "createdAt": "1767225600",
    "updatedAt": "1767225642",
    "finalScore": 93.25,
    "namespace": "video",
    "name": "job-x7k2p",
    "work": "",
    "progress": {"frames": "300", "totalFrames": "300", "fps": 112.5},
    "features": {"psnr_y": 41.9, "vmaf": 93.25},
    "reason": "",
    "samplesToken": "",
    "createTime": "2026-01-01T00:00:00Z",
    "updateTime": "2026-01-01T00:00:42Z",
}
PULLED = {name: value for name, value in JOB.items() if name not in {"finalScore", "progress"}} | {
    "id": ATTEMPT,
    "status": "RUNNING",
    "features": {},
    "work": '{"id":"9f6b6c1e-5a3f-4c5b-8d43-0a7f3f0f2b11-0"}',
}
SESSION = {"sessionToken": "eyJub2RlIjoidmlkZW8vZ3B1LTEifQ.c2lnbmF0dXJl"}
CAPABILITY = {"gpuVendor": "nvidia", "backends": ["cuda", "cpu"], "concurrency": 2}
RUNNING = {"jobs": [{"id": ATTEMPT, "name": "job-x7k2p"}]}
EXAMPLES = {
    "SubmitJob": Example(
        {"jobId": UID, "namespace": "video", "name": "job-x7k2p"},
        {"scoring": SCORING, "namespace": "video", "spec": '{"priority": 5}'},
    ),
    "GetJob": Example(JOB),
    "CancelJob": Example({"ok": True, "message": ""}, {"namespace": "video"}),
    "StreamJobs": Example(JOB),
    "ListJobs": Example({"jobs": [JOB], "continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"}),
    "RegisterNode": Example(
        {"nodeId": NODE, **SESSION, "capacity": 2, "message": ""},
        {"name": "gpu-1", "capability": CAPABILITY, "namespace": "video", "device": "NVIDIA L4", "fps": 112.5},
    ),
    "Heartbeat": Example(
        {"ok": True, "stopJobIds": [], "superseded": False, "capacity": 2}, {**SESSION, "runningJobIds": RUNNING}
    ),
    "PullWork": Example(
        {"job": PULLED, "stopJobIds": []},
        {**SESSION, "capability": CAPABILITY, "runningJobIds": {"jobs": []}, "waitSeconds": 60},
    ),
    "ReportResult": Example(
        {"ok": True},
        {
            **SESSION,
            "jobId": ATTEMPT,
            "final": True,
            "answer": f'{{"id": "{ATTEMPT}", "score": 93.25, "frames": 300}}',
            "name": "job-x7k2p",
        },
    ),
    "PushSamples": Example(
        {"result": "STORED", "message": ""},
        {"samplesToken": "eyJqb2IiOiJqb2IteDdrMnAifQ.c2lnbmF0dXJl", "samples": "AP8="},
    ),
}
PARAMETERS: dict[str, Any] = {
    "job_id": UID,
    "node_id": NODE,
    "namespace": "video",
    "status": ["RUNNING", "PENDING"],
}
