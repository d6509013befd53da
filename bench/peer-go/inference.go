package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const (
	nameLabel, inferenceName  = "app.kubernetes.io/name", "vmafx-inference"
	managerLabel, managerName = "app.kubernetes.io/managed-by", "vmafx-operator"
	serviceLabel, trackLabel  = "vmafx.dev/service", "vmafx.dev/track"
	primary, canary           = "primary", "canary"
	targetCPU                 = int32(80) // percent
)

// inferenceReconciler writes the children of a service, each only if it is missing or different.
type inferenceReconciler struct {
	client.Client
	image string // of services without one
}

// notCreated ignores that a child appeared: the reconciliation that created it knows.
var notCreated = predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}

func inferenceChildren() []client.Object {
	return []client.Object{
		&appsv1.Deployment{}, &corev1.Service{}, &autoscalingv2.HorizontalPodAutoscaler{}, &policyv1.PodDisruptionBudget{},
	}
}

// inferenceCaches limits the caches to the children of services.
func inferenceCaches(byObject map[client.Object]cache.ByObject) {
	for _, child := range inferenceChildren() {
		byObject[child] = cache.ByObject{Label: labels.SelectorFromSet(labels.Set{nameLabel: inferenceName})}
	}
}

func (r *inferenceReconciler) setUp(mgr ctrl.Manager, workers controller.Options) error {
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})
	built := ctrl.NewControllerManagedBy(mgr).For(&ZerfooInferenceService{}, builder.WithPredicates(changed))
	for _, child := range inferenceChildren() {
		built = built.Owns(child, builder.WithPredicates(notCreated))
	}
	return built.WithOptions(workers).Complete(r)
}

func (r *inferenceReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var service ZerfooInferenceService
	if err := r.Get(ctx, req.NamespacedName, &service); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if service.DeletionTimestamp != nil { // the garbage collector deletes the children
		return ctrl.Result{}, nil
	}
	main, err := r.deployment(ctx, &service, primary, service.Spec.ModelRef, primaryReplicas(&service))
	if err != nil {
		return ctrl.Result{}, err
	}
	replicas := wantedReplicas(&service, main)
	second, err := r.canary(ctx, &service, replicas)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.network(ctx, &service); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.autoscaler(ctx, &service); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.budget(ctx, &service, primary, max(replicas, service.Spec.MinReplicas) > 1); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.status(ctx, &service, main, second, replicas)
}

// primaryReplicas is nil if an autoscaler decides.
func primaryReplicas(service *ZerfooInferenceService) *int32 {
	if service.Spec.MinReplicas > 0 {
		return nil
	}
	return &service.Spec.Replicas
}

// wantedReplicas is the number of replicas of the primary: the spec's, or what the autoscaler decided.
func wantedReplicas(service *ZerfooInferenceService, main *appsv1.Deployment) int32 {
	if service.Spec.MinReplicas == 0 {
		return service.Spec.Replicas
	}
	if main.Spec.Replicas == nil {
		return service.Spec.MinReplicas
	}
	return max(*main.Spec.Replicas, service.Spec.MinReplicas)
}

// canaryReplicas is the c for which c/(c+replicas) is nearest to the weight.
func canaryReplicas(replicas, weight int32) int32 {
	switch {
	case weight <= 0:
		return 0
	case weight >= 100:
		return replicas
	}
	off := func(c int32) float64 {
		d := float64(c)/float64(c+replicas) - float64(weight)/100
		return max(d, -d)
	}
	low := replicas * weight / (100 - weight)
	if off(low+1) < off(low) {
		low++
	}
	return max(low, 1)
}

func (r *inferenceReconciler) canary(ctx context.Context, service *ZerfooInferenceService, replicas int32) (*appsv1.Deployment, error) {
	name := service.Name + "-" + canary
	if service.Spec.Canary == nil {
		for _, child := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}} {
			if err := r.remove(ctx, service, child, name); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	count := canaryReplicas(replicas, service.Spec.Canary.Weight)
	if err := r.budget(ctx, service, canary, count > 1); err != nil {
		return nil, err
	}
	return r.deployment(ctx, service, canary, service.Spec.Canary.ModelRef, &count)
}

// network writes the Services: one for all replicas, one for each track.
func (r *inferenceReconciler) network(ctx context.Context, service *ZerfooInferenceService) error {
	if err := r.service(ctx, service, service.Name+"-svc", ""); err != nil {
		return err
	}
	if err := r.service(ctx, service, service.Name+"-"+primary, primary); err != nil || service.Spec.Canary == nil {
		return err
	}
	return r.service(ctx, service, service.Name+"-"+canary, canary)
}

func childMeta(service *ZerfooInferenceService, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: service.Namespace, Name: name}
}

func selectorOf(service *ZerfooInferenceService, track string) map[string]string {
	selector := map[string]string{serviceLabel: service.Name}
	if track != "" {
		selector[trackLabel] = track
	}
	return selector
}

func childLabels(service *ZerfooInferenceService, track string) map[string]string {
	all := selectorOf(service, track)
	all[nameLabel], all[managerLabel] = inferenceName, managerName
	return all
}

// write creates or updates a child; `set` changes the fields that this operator manages.
func (r *inferenceReconciler) write(ctx context.Context, service *ZerfooInferenceService, child client.Object, track string, set func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		all := child.GetLabels()
		if all == nil {
			all = map[string]string{}
		}
		for label, value := range childLabels(service, track) {
			all[label] = value
		}
		child.SetLabels(all)
		set()
		return controllerutil.SetControllerReference(service, child, r.Scheme())
	})
	return err
}

// remove deletes a child that is no longer wanted.
func (r *inferenceReconciler) remove(ctx context.Context, service *ZerfooInferenceService, child client.Object, name string) error {
	err := r.Get(ctx, client.ObjectKey{Namespace: service.Namespace, Name: name}, child)
	if err != nil || !metav1.IsControlledBy(child, service) {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(r.Delete(ctx, child))
}

func (r *inferenceReconciler) service(ctx context.Context, service *ZerfooInferenceService, name, track string) error {
	child := &corev1.Service{ObjectMeta: childMeta(service, name)}
	return r.write(ctx, service, child, track, func() {
		child.Spec.Type = corev1.ServiceTypeClusterIP
		child.Spec.Selector = selectorOf(service, track)
		child.Spec.Ports = []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString("http"),
		}}
	})
}

func (r *inferenceReconciler) budget(ctx context.Context, service *ZerfooInferenceService, track string, wanted bool) error {
	name := service.Name + "-" + track
	child := &policyv1.PodDisruptionBudget{ObjectMeta: childMeta(service, name)}
	if !wanted {
		return r.remove(ctx, service, child, name)
	}
	one := intstr.FromInt32(1)
	return r.write(ctx, service, child, track, func() {
		child.Spec.MaxUnavailable = &one
		child.Spec.Selector = &metav1.LabelSelector{MatchLabels: selectorOf(service, track)}
	})
}

func (r *inferenceReconciler) autoscaler(ctx context.Context, service *ZerfooInferenceService) error {
	name := service.Name + "-" + primary + "-hpa"
	child := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: childMeta(service, name)}
	if service.Spec.MinReplicas == 0 {
		return r.remove(ctx, service, child, name)
	}
	percent := targetCPU
	return r.write(ctx, service, child, primary, func() {
		child.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{
			APIVersion: "apps/v1", Kind: "Deployment", Name: service.Name + "-" + primary,
		}
		child.Spec.MinReplicas, child.Spec.MaxReplicas = &service.Spec.MinReplicas, service.Spec.MaxReplicas
		child.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
			},
		}}
	})
}

func (r *inferenceReconciler) deployment(
	ctx context.Context, service *ZerfooInferenceService, track, model string, replicas *int32,
) (*appsv1.Deployment, error) {
	child := &appsv1.Deployment{ObjectMeta: childMeta(service, service.Name+"-"+track)}
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	err := r.write(ctx, service, child, track, func() {
		if replicas != nil {
			child.Spec.Replicas = replicas
		}
		child.Spec.Selector = &metav1.LabelSelector{MatchLabels: selectorOf(service, track)}
		child.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &none, MaxSurge: &one},
		}
		child.Spec.Template.Labels = childLabels(service, track)
		child.Spec.Template.Spec = r.pod(service, model)
	})
	return child, err
}

// status reports what the Deployments say; it is written only if it changed.
func (r *inferenceReconciler) status(
	ctx context.Context, service *ZerfooInferenceService, main, second *appsv1.Deployment, replicas int32,
) error {
	before := service.DeepCopy()
	status := &service.Status
	running, ready, wanted := main.Status.Replicas, main.Status.ReadyReplicas, replicas
	complete := rolledOut(main)
	status.CanaryReplicas, status.CanaryWeight = 0, nil
	if second != nil {
		running, ready, wanted = running+second.Status.Replicas, ready+second.Status.ReadyReplicas, wanted+*second.Spec.Replicas
		complete = complete && rolledOut(second)
		status.CanaryReplicas, status.CanaryWeight = second.Status.Replicas, &service.Spec.Canary.Weight
	}
	status.Ready, status.Replicas = complete && ready >= wanted, running
	status.Message = fmt.Sprintf("%d of %d replicas are ready", ready, wanted)
	status.URL = fmt.Sprintf("http://%s-svc.%s.svc", service.Name, service.Namespace)
	status.Selector = serviceLabel + "=" + service.Name
	status.ObservedGeneration = service.Generation
	condition := func(kind string, is bool, reason string) {
		state := metav1.ConditionFalse
		if is {
			state = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: state, Reason: reason, Message: status.Message, ObservedGeneration: service.Generation,
		})
	}
	condition("Ready", status.Ready, oneOf(status.Ready, "ReplicasReady", "ReplicasNotReady"))
	condition("Available", ready > 0, oneOf(ready > 0, "ReplicasReady", "NoReplicaReady"))
	condition("Progressing", !complete, oneOf(complete, "RolledOut", "RollingOut"))
	condition("Degraded", false, "AsExpected")
	if second != nil {
		condition("CanaryHonoured", true, "ByReplicas")
	} else {
		meta.RemoveStatusCondition(&status.Conditions, "CanaryHonoured")
	}
	if equality.Semantic.DeepEqual(before.Status, service.Status) {
		return nil
	}
	return client.IgnoreNotFound(r.Status().Patch(ctx, service, client.MergeFrom(before)))
}

func rolledOut(deployment *appsv1.Deployment) bool {
	return deployment.Status.ObservedGeneration >= deployment.Generation && deployment.Spec.Replicas != nil &&
		deployment.Status.UpdatedReplicas >= *deployment.Spec.Replicas
}

func oneOf(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// pod has every default of the API server, or it would differ from what is stored.
func (r *inferenceReconciler) pod(service *ZerfooInferenceService, model string) corev1.PodSpec {
	image := service.Spec.Image
	if image == "" {
		image = r.image
	}
	user, grace := int64(65532), int64(30)
	return corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyAlways,
		DNSPolicy:                     corev1.DNSClusterFirst,
		SchedulerName:                 corev1.DefaultSchedulerName,
		TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:  "server",
			Image: image,
			Env: []corev1.EnvVar{
				{Name: "PORT", Value: fmt.Sprint(service.Spec.Port)},
				{Name: "MODEL_REF", Value: model},
			},
			Ports:                    []corev1.ContainerPort{{Name: "http", ContainerPort: service.Spec.Port, Protocol: corev1.ProtocolTCP}},
			Resources:                resourcesOf(service.Spec.Resources),
			ReadinessProbe:           probeOf(service, 3),
			LivenessProbe:            probeOf(service, 3),
			StartupProbe:             probeOf(service, 60),
			Lifecycle:                &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}},
			TerminationMessagePath:   corev1.TerminationMessagePathDefault,
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			ImagePullPolicy:          corev1.PullIfNotPresent,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no,
				ReadOnlyRootFilesystem:   &yes,
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}

func resourcesOf(spec *InferenceResources) corev1.ResourceRequirements {
	all := corev1.ResourceList{}
	if spec != nil && spec.CPU != nil {
		all[corev1.ResourceCPU] = *spec.CPU
	}
	if spec != nil && spec.Memory != nil {
		all[corev1.ResourceMemory] = *spec.Memory
	}
	return corev1.ResourceRequirements{Requests: all, Limits: all}
}

func probeOf(service *ZerfooInferenceService, failures int32) *corev1.Probe {
	check := &service.Spec.HealthCheck
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: check.Path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP,
		}},
		PeriodSeconds:    max(int32(check.Interval.Seconds()), 1),
		TimeoutSeconds:   max(int32(check.Timeout.Seconds()), 1),
		SuccessThreshold: 1,
		FailureThreshold: failures,
	}
}
