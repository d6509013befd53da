package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What this operator does as ours does, so that a benchmark can measure what each of these costs. All are off by default.
var (
	podsAsJSON = os.Getenv("PODS_AS_JSON") != "" // Pods are sent and watched as JSON
	fence      = os.Getenv("FENCE") != ""        // the placement is written before the Pod is created
	ourStatus  = os.Getenv("OUR_STATUS") != ""   // all fields that ours writes to a job's status, conditions included
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
