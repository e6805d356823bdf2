package runtime

import (
	"slices"
	"time"
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
	if inst.timer != nil {
		inst.timer.Stop() // one that fires already finds it in use
	}
	if inst.free--; inst.free == 0 {
		p.idle = without(p.idle, inst)
	}
	return inst, cold, nil
}

// release gives back a place, unless the instance is gone or about to be.
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
	if p.options.IdleTimeout > 0 && inst.free == p.function.Concurrency {
		inst.timer = time.AfterFunc(p.options.IdleTimeout, func() { p.expire(inst) })
	}
}

// expire ends an instance that nobody has used for the idle time-out.
func (p *Pool) expire(inst *instance) {
	p.mu.Lock()
	unused := slices.Contains(p.idle, inst) && inst.free == p.function.Concurrency
	if unused {
		p.drop(inst)
	}
	p.mu.Unlock()
	if unused {
		inst.end()
	}
}

// adopt adds a process that has just started. It reports false if the pool was
// closed meanwhile; the process must then be killed.
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
	p.drop(inst)
}

// drop is retire under the lock.
func (p *Pool) drop(inst *instance) {
	p.idle = without(p.idle, inst)
	if inst.timer != nil {
		inst.timer.Stop()
	}
}

// forget takes an instance that is gone out of all but the memory of output.
func (p *Pool) forget(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = without(p.live, inst)
	p.drop(inst)
	p.ended = append(p.ended, inst)
	if len(p.ended) > remembered {
		p.ended = slices.Clone(p.ended[1:])
	}
}
