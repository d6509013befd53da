// The Go anchor: what the benchmarks ask of an operator, on controller-runtime and tuned as its users would.
//
// One controller writes the health of nodes (nodes.go), one runs jobs as Pods (jobs.go), and with INFERENCE=1 one runs
// inference services as Deployments (inference.go). No client-side rate limit, typed objects, children cached by label and
// sent as protobuf, managedFields stripped from the caches, merge patches, and no reconcile on the controllers' own status
// writes. variants.go has what it can do differently.
package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"go.uber.org/zap/zapcore"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// withInference: the other benchmarks run without services, and so without their caches.
var withInference = os.Getenv("INFERENCE") != ""

func must(err error) {
	if err != nil {
		ctrl.Log.Error(err, "fatal")
		os.Exit(1)
	}
}

// caches says what is kept of what.
func caches() cache.Options {
	ofJobs, err := labels.Parse(jobLabel)
	must(err)
	byObject := map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: ofJobs}}
	if os.Getenv("ONLY_UNFINISHED") != "" { // what few do: have the server leave out what is over
		unfinished := fields.ParseSelectorOrDie("status.phase!=Succeeded,status.phase!=Failed")
		byObject[&VmafxJob{}] = cache.ByObject{Field: unfinished}
	}
	if withInference {
		inferenceCaches(byObject)
	}
	return cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: byObject}
}

// readyWhenSynced makes every informer before readiness is asked, or "synced" would be true of none.
func readyWhenSynced(mgr ctrl.Manager) {
	objects := []client.Object{&VmafxJob{}, &VmafxNode{}, &corev1.Pod{}}
	if withInference {
		objects = append(append(objects, &ZerfooInferenceService{}), inferenceChildren()...)
	}
	for _, object := range objects {
		_, err := mgr.GetCache().GetInformer(context.Background(), object, cache.BlockUntilSynced(false))
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
}

func main() {
	ctrl.SetLogger(zap.New(zap.Level(zapcore.WarnLevel)))
	scheme := runtime.NewScheme()
	must(addToScheme(scheme))
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, eventsv1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, policyv1.AddToScheme,
	} {
		must(add(scheme))
	}
	config := ctrl.GetConfigOrDie()
	config.QPS = -1
	if podsAsJSON {
		config.ContentType = runtime.ContentTypeJSON
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: os.Getenv("METRICS_ADDR")},
		HealthProbeBindAddress: os.Getenv("PROBE_ADDR"),
		Cache:                  caches(),
	})
	must(err)
	readyWhenSynced(mgr)
	workers := controller.Options{MaxConcurrentReconciles: 32}
	must(ctrl.NewControllerManagedBy(mgr).
		For(&VmafxNode{}).
		WithOptions(workers).
		Complete(&nodeReconciler{Client: mgr.GetClient(), probes: &probes{latest: map[string]answer{}}}))
	must(ctrl.NewControllerManagedBy(mgr).
		For(&VmafxJob{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.Pod{}, builder.WithPredicates(endedPods)).
		WithOptions(workers).
		Complete(&jobReconciler{Client: mgr.GetClient(), places: newPlaces()}))
	if withInference {
		services := &inferenceReconciler{Client: mgr.GetClient(), image: os.Getenv("VMAFX_SERVING_IMAGE")}
		must(services.setUp(mgr, workers))
	}
	must(mgr.Start(ctrl.SetupSignalHandler()))
}
