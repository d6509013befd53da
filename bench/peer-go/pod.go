package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const jobLabel, nodeLabel = "vmafx.dev/job", "vmafx.dev/node"

var (
	yes, no  = true, false
	devices  = map[string]corev1.ResourceName{"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
	requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("512Mi")}
	oneGPU   = resource.MustParse("1")
)

// workerPod is the Pod of a job: one container, told by variables what to score.
func workerPod(job *VmafxJob, node *VmafxNode) *corev1.Pod {
	resources := corev1.ResourceRequirements{Requests: requests}
	if device := devices[node.Spec.GPUVendor]; device != "" {
		resources.Limits = corev1.ResourceList{device: oneGPU}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      job.Name + "-0",
			Namespace: job.Namespace,
			Labels:    map[string]string{jobLabel: job.Name, nodeLabel: node.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: groupVersion.String(), Kind: "VmafxJob", Name: job.Name, UID: job.UID,
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{
				Name:  "worker",
				Image: node.Spec.Image,
				Env: []corev1.EnvVar{
					{Name: "VMAFX_REFERENCE", Value: job.Spec.Reference},
					{Name: "VMAFX_DISTORTED", Value: job.Spec.Distorted},
					{Name: "VMAFX_MODEL", Value: job.Spec.Model},
					{Name: "VMAFX_BACKEND", Value: job.Spec.Backend},
				},
				Resources: resources,
			}},
		},
	}
}
