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
	case apierrors.IsNotFound(err) && fence: // it was stopped between the two writes
		return ctrl.Result{}, r.createPlaced(ctx, &job)
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	case ended(&pod):
		return ctrl.Result{}, r.finish(ctx, req.NamespacedName, &job, &pod)
	case job.Status.Phase != "Running": // it was stopped between the two writes
		return ctrl.Result{}, client.IgnoreNotFound(r.running(ctx, &job, pod.Labels[nodeLabel]))
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
	if fence {
		if err := r.running(ctx, job, node.Name); err != nil {
			r.places.release(name)
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		return ctrl.Result{}, r.createPod(ctx, job, node)
	}
	if err := r.createPod(ctx, job, node); err != nil {
		r.places.release(name)
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.running(ctx, job, node.Name))
}

func (r *jobReconciler) createPod(ctx context.Context, job *VmafxJob, node *VmafxNode) error {
	pod := workerPod(job, node)
	if ourPod != nil {
		pod = podLikeOurs(job, node)
	}
	return client.IgnoreAlreadyExists(r.Create(ctx, pod))
}

func (r *jobReconciler) createPlaced(ctx context.Context, job *VmafxJob) error {
	var node VmafxNode
	if err := r.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: job.Status.AssignedNode}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.createPod(ctx, job, &node)
}

func (r *jobReconciler) running(ctx context.Context, job *VmafxJob, node string) error {
	before, now := client.MergeFrom(job.DeepCopy()), metav1.Now()
	if fence { // a placement decided on an older version of the job must fail
		before = client.MergeFromWithOptions(job.DeepCopy(), client.MergeFromWithOptimisticLock{})
	}
	job.Status.Phase, job.Status.AssignedNode, job.Status.StartedAt = "Running", node, &now
	if ourStatus {
		addPlacedLikeOurs(job, node, now)
	}
	return r.Status().Patch(ctx, job, before)
}

func (r *jobReconciler) finish(ctx context.Context, name types.NamespacedName, job *VmafxJob, pod *corev1.Pod) error {
	before, now := client.MergeFrom(job.DeepCopy()), metav1.Now()
	job.Status.FinishedAt = &now
	result := resultOf(pod)
	if result.Score != nil {
		job.Status.Phase, job.Status.Score = "Succeeded", result.Score
		if ourStatus {
			addScoredLikeOurs(job, result, now)
		}
	} else {
		job.Status.Phase, job.Status.Message = "Failed", "the worker left no score"
	}
	if err := r.Status().Patch(ctx, job, before); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.places.release(name)
	if ourEvents && result.Score != nil {
		r.emitScored(ctx, job, result)
	}
	return nil
}

// workerResult is what a worker leaves as the last message of its container.
type workerResult struct {
	Score  *float64 `json:"score"`
	Frames *int64   `json:"frames"`
}

func resultOf(pod *corev1.Pod) workerResult {
	var result workerResult
	for i := range pod.Status.ContainerStatuses {
		if end := pod.Status.ContainerStatuses[i].State.Terminated; end != nil && json.Unmarshal([]byte(end.Message), &result) == nil {
			return result
		}
	}
	return workerResult{}
}
