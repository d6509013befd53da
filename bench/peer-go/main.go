// The Go anchor: what bench/sync.py asks of an operator, on controller-runtime and tuned as its users would.
//
// Caches of VmafxJobs and VmafxNodes, and a controller that writes a node's health. No client-side rate limit, typed
// objects, managedFields stripped from the cache, no reconcile on the controller's own status writes.
package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	probeEvery = 30 * time.Second
	staleAfter = 60 * time.Second
)

// probes asks each namespace's controller once in probeEvery, for all its nodes.
type probes struct {
	mu     sync.Mutex
	client http.Client
	latest map[string]answer
}

type answer struct {
	ok bool
	at time.Time
}

func (p *probes) ok(ctx context.Context, namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, known := p.latest[namespace]; known && time.Since(a.at) < probeEvery {
		return a.ok
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ok := false
	if req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv("VMAFX_CONTROLLER_HTTP_ADDR")+"/healthz", nil); err == nil {
		if res, err := p.client.Do(req); err == nil {
			ok = res.StatusCode/100 == 2
			res.Body.Close()
		}
	}
	p.latest[namespace] = answer{ok, time.Now()}
	return ok
}

type nodeReconciler struct {
	client.Client
	probes *probes
}

func (r *nodeReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var node VmafxNode
	if err := r.Get(ctx, req.NamespacedName, &node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	heartbeat := node.Status.LastHeartbeat
	healthy := r.probes.ok(ctx, node.Namespace) && (heartbeat == nil || time.Since(heartbeat.Time) <= staleAfter)
	if node.Status.Healthy != healthy {
		before := client.MergeFrom(node.DeepCopyObject().(*VmafxNode))
		node.Status.Healthy = healthy
		if err := r.Status().Patch(ctx, &node, before); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return ctrl.Result{RequeueAfter: probeEvery}, nil
}

func must(err error) {
	if err != nil {
		ctrl.Log.Error(err, "fatal")
		os.Exit(1)
	}
}

func main() {
	ctrl.SetLogger(zap.New(zap.Level(zapcore.WarnLevel)))
	scheme := runtime.NewScheme()
	must(addToScheme(scheme))
	config := ctrl.GetConfigOrDie()
	config.QPS = -1
	cached := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
	if os.Getenv("ONLY_UNFINISHED") != "" { // what few do: have the server leave out what is over
		unfinished := fields.ParseSelectorOrDie("status.phase!=Succeeded,status.phase!=Failed")
		cached.ByObject = map[client.Object]cache.ByObject{&VmafxJob{}: {Field: unfinished}}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: os.Getenv("METRICS_ADDR")},
		HealthProbeBindAddress: os.Getenv("PROBE_ADDR"),
		Cache:                  cached,
	})
	must(err)
	// Both informers must exist before readiness is asked, or "synced" would be true of none.
	for _, object := range []client.Object{&VmafxJob{}, &VmafxNode{}} {
		_, err = mgr.GetCache().GetInformer(context.Background(), object, cache.BlockUntilSynced(false))
		must(err)
	}
	must(mgr.AddReadyzCheck("caches", func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), 50*time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not synced")
		}
		return nil
	}))
	must(ctrl.NewControllerManagedBy(mgr).
		For(&VmafxNode{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 32}).
		Complete(&nodeReconciler{Client: mgr.GetClient(), probes: &probes{latest: map[string]answer{}}}))
	must(mgr.Start(ctrl.SetupSignalHandler()))
}
