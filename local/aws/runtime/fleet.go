package runtime

import (
	"slices"
)

// take reserves a place in an instance that has one free, or in a new one
// (cold), which the caller must then initialise.
func (p *Pool) take() (inst *instance, cold bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		return nil, false, ErrClosed
	}
	if n := len(p.idle); n > 0 {
		inst = p.idle[n-1]
	} else {
		inst, cold = p.newInstance(), true
		p.idle = append(p.idle, inst)
	}
	if inst.free--; inst.free == 0 {
		p.idle = without(p.idle, inst)
	}
	return inst, cold, nil
}

// release frees a place, unless the instance is gone or leaving.
func (p *Pool) release(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-inst.leaving:
		return
	default:
	}
	if !slices.Contains(p.live, inst) {
		return
	}
	inst.free++
	p.idle = append(without(p.idle, inst), inst) // most recently used last
}

// adopt adds a process that has just started. It reports false if the pool was closed while
// the process started; the process must then be killed.
func (p *Pool) adopt(inst *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = append(p.live, inst)
	return !p.shut
}

// retire keeps new work from an instance.
func (p *Pool) retire(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = without(p.idle, inst)
}

// forget removes an instance that is gone.
func (p *Pool) forget(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = without(p.live, inst)
	p.idle = without(p.idle, inst)
}
