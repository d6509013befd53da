package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const lookAgain = time.Second // while no node is free

var vendorOf = map[string]string{"": "cpu", "cpu": "cpu", "cuda": "nvidia", "hip": "amd", "sycl": "intel"}

type jobReconciler struct {
	client.Client
	places *places
	filled sync.Once
}

// endedPods lets through the one change of a Pod that a job waits for: that it is over.
var endedPods = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return ended(e.Object) },
	UpdateFunc:  func(e event.UpdateEvent) bool { return ended(e.ObjectNew) && !ended(e.ObjectOld) },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func ended(object client.Object) bool {
	pod, is := object.(*corev1.Pod)
	return is && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

func over(job *VmafxJob) bool { return job.Status.Phase == "Succeeded" || job.Status.Phase == "Failed" }

func (r *jobReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.filled.Do(func() { r.fillPlaces(ctx) })
	var job VmafxJob
	if err := r.Get(ctx, req.NamespacedName, &job); err != nil {
		r.places.release(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if over(&job) || job.DeletionTimestamp != nil {
		r.places.release(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	var pod corev1.Pod
	err := r.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: job.Name + "-0"}, &pod)
	switch {
	case apierrors.IsNotFound(err) && job.Status.Phase != "Running":
		return r.start(ctx, req.NamespacedName, &job)
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	case ended(&pod):
		return ctrl.Result{}, r.finish(ctx, req.NamespacedName, &job, &pod)
	case job.Status.Phase != "Running": // it was stopped between the two writes
		return ctrl.Result{}, r.running(ctx, &job, pod.Labels[nodeLabel])
	}
	return ctrl.Result{}, nil
}

// fillPlaces counts what ran before this process did, before it places anything.
func (r *jobReconciler) fillPlaces(ctx context.Context) {
	var jobs VmafxJobList
	must(r.List(ctx, &jobs, client.UnsafeDisableDeepCopy))
	for i := range jobs.Items {
		if job := &jobs.Items[i]; job.Status.AssignedNode != "" && !over(job) {
			r.places.hold(client.ObjectKeyFromObject(job), types.NamespacedName{Namespace: job.Namespace, Name: job.Status.AssignedNode})
		}
	}
}

func (r *jobReconciler) start(ctx context.Context, name types.NamespacedName, job *VmafxJob) (ctrl.Result, error) {
	var nodes VmafxNodeList
	if err := r.List(ctx, &nodes, client.InNamespace(job.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	node := r.places.choose(name, vendorOf[job.Spec.Backend], nodes.Items)
	if node == nil {
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	if err := r.Create(ctx, workerPod(job, node)); err != nil && !apierrors.IsAlreadyExists(err) {
		r.places.release(name)
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.running(ctx, job, node.Name)
}

func (r *jobReconciler) running(ctx context.Context, job *VmafxJob, node string) error {
	before, now := client.MergeFrom(job.DeepCopy()), metav1.Now()
	job.Status.Phase, job.Status.AssignedNode, job.Status.StartedAt = "Running", node, &now
	return client.IgnoreNotFound(r.Status().Patch(ctx, job, before))
}

func (r *jobReconciler) finish(ctx context.Context, name types.NamespacedName, job *VmafxJob, pod *corev1.Pod) error {
	before, now := client.MergeFrom(job.DeepCopy()), metav1.Now()
	job.Status.FinishedAt = &now
	if score := scoreOf(pod); score != nil {
		job.Status.Phase, job.Status.Score = "Succeeded", score
	} else {
		job.Status.Phase, job.Status.Message = "Failed", "the worker left no score"
	}
	if err := r.Status().Patch(ctx, job, before); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.places.release(name)
	return nil
}

func scoreOf(pod *corev1.Pod) *float64 {
	var said struct {
		Score *float64 `json:"score"`
	}
	for i := range pod.Status.ContainerStatuses {
		if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil && json.Unmarshal([]byte(end.Message), &said) == nil {
			return said.Score
		}
	}
	return nil
}
