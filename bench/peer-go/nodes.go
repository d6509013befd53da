package main

import (
	"context"
	"net/http"
	"os"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
