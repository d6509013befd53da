package main

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// places counts the jobs of each node, those of a moment ago included, which no cache shows yet.
type places struct {
	mu     sync.Mutex
	nodeOf map[types.NamespacedName]types.NamespacedName
	jobs   map[types.NamespacedName]int32
}

func newPlaces() *places {
	return &places{nodeOf: map[types.NamespacedName]types.NamespacedName{}, jobs: map[types.NamespacedName]int32{}}
}

func (p *places) hold(job, node types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.move(job, node)
}

func (p *places) release(job types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.move(job, types.NamespacedName{})
}

// choose takes a place on the emptiest healthy node of the vendor; nil if there is none.
func (p *places) choose(job types.NamespacedName, vendor string, nodes []VmafxNode) *VmafxNode {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.move(job, types.NamespacedName{})
	var chosen *VmafxNode
	var most int32
	for i := range nodes {
		node := &nodes[i]
		if !node.Status.Healthy || node.Spec.GPUVendor != vendor {
			continue
		}
		if free := node.Spec.Capacity - p.jobs[nameOf(node)]; free > most {
			chosen, most = node, free
		}
	}
	if chosen != nil {
		p.move(job, nameOf(chosen))
	}
	return chosen
}

func (p *places) move(job, node types.NamespacedName) {
	before, held := p.nodeOf[job]
	if held && before == node {
		return
	}
	if held {
		p.jobs[before]--
		delete(p.nodeOf, job)
	}
	if node.Name != "" {
		p.jobs[node]++
		p.nodeOf[job] = node
	}
}

func nameOf(node *VmafxNode) types.NamespacedName {
	return types.NamespacedName{Namespace: node.Namespace, Name: node.Name}
}
