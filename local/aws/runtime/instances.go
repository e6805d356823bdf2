package runtime

import (
	"fmt"
	"slices"
	"sync"
)

// InFlight is an invocation that a process works on and whose caller has no outcome yet.
type InFlight struct {
	RequestID string
	Trace     string
	PID       int
	// Payload is the event; it must not be changed.
	Payload []byte
}

// PIDs lists the processes that exist, oldest first.
func (p *Pool) PIDs() (pids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, inst := range p.live {
		pids = append(pids, inst.pid())
	}
	return pids
}

// InFlight lists the invocations in progress, so that the process with a certain event can
// be found and signalled.
func (p *Pool) InFlight() []InFlight {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []InFlight
	for _, inst := range p.live {
		for _, inv := range inst.inFlight() {
			list = append(list, InFlight{RequestID: inv.id, Trace: inv.trace, PID: inst.pid(), Payload: inv.payload})
		}
	}
	return list
}

// Kill ends a process with SIGKILL, like a crash, and returns when it has ended. Its
// invocations get Runtime.ExitError.
func (p *Pool) Kill(pid int) error { return p.stop(pid, (*instance).kill) }

// Freeze stops a process and all that it has started, until the time-out of its invocation ends it.
func (p *Pool) Freeze(pid int) error { return p.stop(pid, (*instance).freeze) }

// stop stops a process, which gets no more work.
func (p *Pool) stop(pid int, how func(*instance)) error {
	p.mu.Lock()
	live := slices.Clone(p.live)
	p.mu.Unlock()
	for _, inst := range live {
		if inst.pid() == pid {
			p.retire(inst)
			how(inst)
			return nil
		}
	}
	return fmt.Errorf("runtime: no instance of %s with pid %d; there are %v", p.function.Name, pid, p.PIDs())
}

// Close ends all processes, waits until they have ended, and lets invocations end with
// ErrClosed. It may be called more than once.
func (p *Pool) Close() {
	p.end.Do(func() {
		p.mu.Lock()
		p.shut = true
		live := slices.Clone(p.live)
		detach := p.detach
		p.mu.Unlock()
		detach()
		close(p.closing)
		var ends sync.WaitGroup
		for _, inst := range live {
			ends.Go(inst.kill)
		}
		ends.Wait()
		p.work.Wait()
	})
}

func without(list []*instance, inst *instance) []*instance {
	return slices.DeleteFunc(list, func(other *instance) bool { return other == inst })
}

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

// release frees a place, unless the instance has ended or is leaving.
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

// forget removes an instance that has ended.
func (p *Pool) forget(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = without(p.live, inst)
	p.idle = without(p.idle, inst)
}
