package runtime

import (
	"fmt"
	"slices"
	"sync"
)

// Instance describes a process of the function.
type Instance struct {
	PID int
	// RequestID is that of its oldest invocation; empty if it has none.
	RequestID string
	// InFlight is how many invocations it works on.
	InFlight int
	// Frozen reports that Options.Freeze has stopped it.
	Frozen bool
	// Invocations counts the events that it was given.
	Invocations int
}

// InFlight is an invocation that a process works on and whose caller has no outcome yet.
type InFlight struct {
	RequestID string
	PID       int
	// Payload is the event; it must not be changed.
	Payload []byte
}

// Instances lists the processes that exist, oldest first.
func (p *Pool) Instances() []Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Instance, 0, len(p.live))
	for _, inst := range p.live {
		list = append(list, inst.describe())
	}
	return list
}

// InFlight lists the invocations in progress, so that the process with a certain event can
// be found and signalled.
func (p *Pool) InFlight() []InFlight {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []InFlight
	for _, inst := range p.live {
		for _, inv := range inst.inFlight() {
			list = append(list, InFlight{RequestID: inv.id, PID: inst.pid(), Payload: inv.payload})
		}
	}
	return list
}

// Kill ends a process with SIGKILL, like a crash, and returns when it is gone. Its
// invocations get Runtime.ExitError.
func (p *Pool) Kill(pid int) error {
	p.mu.Lock()
	live := slices.Clone(p.live)
	p.mu.Unlock()
	var pids []int
	for _, inst := range live {
		if inst.pid() == pid {
			p.retire(inst)
			inst.kill()
			return nil
		}
		pids = append(pids, inst.pid())
	}
	return fmt.Errorf("runtime: no instance of %s with pid %d; there are %v", p.function.Name, pid, pids)
}

// Close ends all processes, waits until they are gone, and lets invocations end with
// ErrClosed. Processes with an extension, such as that of lambda.WithEnableSIGTERM, get
// SIGTERM half a second before SIGKILL, all at the same time. It may be called more than
// once.
func (p *Pool) Close() {
	p.mu.Lock()
	first := !p.shut
	p.shut = true
	live := slices.Clone(p.live)
	detach := p.detach
	p.mu.Unlock()
	if !first {
		<-p.closed
		return
	}
	detach()
	close(p.closing)
	var ends sync.WaitGroup
	for _, inst := range live {
		ends.Go(inst.end)
	}
	ends.Wait()
	p.work.Wait()
	close(p.closed)
}

func (i *instance) describe() Instance {
	flight := i.inFlight()
	i.mu.Lock()
	defer i.mu.Unlock()
	entry := Instance{
		PID: i.pid(), InFlight: len(flight), Frozen: i.frozen, Invocations: i.invocations,
	}
	if len(flight) > 0 {
		entry.RequestID = flight[0].id
	}
	return entry
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
