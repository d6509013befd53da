package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
)

// What this operator does as ours does, so that a benchmark can measure what each of these costs. All are off by default.
var (
	podsAsJSON = os.Getenv("PODS_AS_JSON") != "" // Pods are sent and watched as JSON
	fence      = os.Getenv("FENCE") != ""        // the placement is written before the Pod is created
	ourStatus  = os.Getenv("OUR_STATUS") != ""   // all fields that ours writes to a job's status, conditions included
	ourEvents  = os.Getenv("OUR_EVENTS") != ""   // an event for each score, within the rate limit of ours
	ourPod     = parsePod(os.Getenv("OUR_POD"))  // a Pod of ours, with {job}, {uid} and so on for the values of a job
)

func parsePod(text string) *corev1.Pod {
	if text == "" {
		return nil
	}
	pod := new(corev1.Pod)
	must(json.Unmarshal([]byte(text), pod))
	return pod
}

// podLikeOurs is the Pod that our operator would create for the job.
func podLikeOurs(job *VmafxJob, node *VmafxNode) *corev1.Pod {
	values := strings.NewReplacer("{job}", job.Name, "{uid}", string(job.UID), "{node}", node.Name,
		"{reference}", job.Spec.Reference, "{distorted}", job.Spec.Distorted, "{model}", job.Spec.Model)
	pod := ourPod.DeepCopy()
	pod.Name, pod.Namespace = values.Replace(pod.Name), job.Namespace
	for key, value := range pod.Labels {
		pod.Labels[key] = values.Replace(value)
	}
	pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = job.Name, job.UID
	env := pod.Spec.Containers[0].Env
	for i := range env {
		env[i].Value = values.Replace(env[i].Value)
	}
	return pod
}

func addPlacedLikeOurs(job *VmafxJob, node string, now metav1.Time) {
	status := &job.Status
	status.ControllerJobID, status.Attempts, status.ObservedGeneration = string(job.UID)+"-0", 1, job.Generation
	addCondition(job, "Scheduled", "Placed", "on "+node, now)
}

func addScoredLikeOurs(job *VmafxJob, result workerResult, now metav1.Time) {
	job.Status.Frames, job.Status.ObservedGeneration = result.Frames, job.Generation
	addCondition(job, "Complete", "Scored", fmt.Sprintf("VMAF %.3f", *result.Score), now)
}

func addCondition(job *VmafxJob, kind, reason, message string, now metav1.Time) {
	job.Status.Conditions = append(job.Status.Conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message,
		LastTransitionTime: now, ObservedGeneration: job.Generation,
	})
}

var eventLimit = flowcontrol.NewTokenBucketRateLimiter(10, 100)

// emitScored writes an event in the background, or drops it if there are too many.
func (r *jobReconciler) emitScored(ctx context.Context, job *VmafxJob, result workerResult) {
	if !eventLimit.TryAccept() {
		return
	}
	about := corev1.ObjectReference{
		APIVersion: groupVersion.String(), Kind: "VmafxJob", Namespace: job.Namespace, Name: job.Name, UID: job.UID,
	}
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: job.Name + "." + string(uuid.NewUUID())[:16], Namespace: job.Namespace},
		EventTime:           metav1.NowMicro(),
		ReportingController: "vmafx-operator", ReportingInstance: "peer",
		Type: "Normal", Reason: "Scored", Action: "Run", Note: fmt.Sprintf("VMAF %.3f", *result.Score), Regarding: about,
	}
	go func() {
		if err := r.Create(context.WithoutCancel(ctx), event); err != nil {
			ctrl.Log.Error(err, "could not write an event")
		}
	}()
}
