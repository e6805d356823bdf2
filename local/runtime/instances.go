package runtime

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// remembered is of how many ended instances the output is kept.
const remembered = 32

// Instance describes a process of the function.
type Instance struct {
	PID int
	// Started is when the process was started.
	Started time.Time
	// RequestID is what it works on; empty if nothing.
	RequestID string
	// Invocations counts the events that it was given.
	Invocations int
}

// InFlight is an invocation that a process has been given and has not answered.
type InFlight struct {
	RequestID string
	TenantID  string
	PID       int
	Since     time.Time
	// Payload is the event; it must not be changed.
	Payload []byte
}

// Instances lists the processes that exist, oldest first.
func (p *Pool) Instances() []Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Instance, 0, len(p.live))
	for _, inst := range p.live {
		entry := Instance{PID: inst.pid(), Started: inst.started}
		if inv := inst.working(&entry.Invocations); inv != nil {
			entry.RequestID = inv.id
		}
		list = append(list, entry)
	}
	return list
}

// InFlight lists what the processes work on now, so that the one with a certain
// event can be found and signalled.
func (p *Pool) InFlight() []InFlight {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []InFlight
	for _, inst := range p.live {
		if inv := inst.working(nil); inv != nil {
			list = append(list, InFlight{
				RequestID: inv.id, TenantID: inv.tenant, PID: inst.pid(), Since: inv.started, Payload: inv.payload,
			})
		}
	}
	return list
}

// Output returns the last lines of an instance, also of one that has ended as
// long as it is among the last 32. The error for an unknown pid says so.
func (p *Pool) Output(pid int) (Output, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Live before ended, latest first: the system reuses pids.
	for _, list := range [][]*instance{p.live, p.ended} {
		for _, inst := range slices.Backward(list) {
			if inst.pid() == pid {
				return Output{Stdout: inst.stdout.snapshot(), Stderr: inst.stderr.snapshot()}, nil
			}
		}
	}
	return Output{}, fmt.Errorf("runtime: no instance of %s with pid %d is known", p.function.Name, pid)
}

// Kill ends a process with SIGKILL and returns when it is gone. What it works
// on gets Runtime.ExitError.
func (p *Pool) Kill(pid int) error {
	inst, err := p.find(pid)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.idle = without(p.idle, inst)
	p.mu.Unlock()
	inst.kill()
	return nil
}

// Signal sends a signal to a process and all that it has started, for example
// syscall.SIGSTOP and syscall.SIGCONT. The deadline of what it works on runs on.
// On Linux a process that was sent SIGSTOP stands still when Signal returns.
func (p *Pool) Signal(pid int, signal os.Signal) error {
	inst, err := p.find(pid)
	if err != nil {
		return err
	}
	sent, err := inst.signal(signal)
	if err != nil {
		return fmt.Errorf("runtime: signal %v to pid %d: %w", signal, pid, err)
	}
	if !sent {
		return p.noInstance(pid)
	}
	awaitStop(inst.cmd.Process, signal)
	return nil
}

// Close kills all processes, waits until they are gone, and lets invocations
// end with ErrClosed. It may be called more than once.
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
	for _, inst := range live {
		inst.kill()
	}
	p.work.Wait()
	close(p.closed)
}

// take returns an idle instance, or a new one (cold).
func (p *Pool) take() (inst *instance, cold bool, err error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		inst = p.idle[n-1]
		p.idle = p.idle[:n-1]
	}
	shut := p.shut
	p.mu.Unlock()
	switch {
	case shut:
		return nil, false, ErrClosed
	case inst != nil:
		return inst, false, nil
	}
	inst, err = p.launch()
	return inst, true, err
}

// adopt adds a process that has just started. It reports false if the pool was
// closed meanwhile; the process must then be killed.
func (p *Pool) adopt(inst *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = append(p.live, inst)
	return !p.shut
}

// release makes an instance available again, unless it is gone.
func (p *Pool) release(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.live, inst) {
		p.idle = append(p.idle, inst)
	}
}

// forget takes an instance that is gone out of all but the memory of output.
func (p *Pool) forget(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = without(p.live, inst)
	p.idle = without(p.idle, inst)
	p.ended = append(p.ended, inst)
	if len(p.ended) > remembered {
		p.ended = slices.Clone(p.ended[1:])
	}
}

func (p *Pool) find(pid int) (*instance, error) {
	p.mu.Lock()
	for _, inst := range p.live {
		if inst.pid() == pid {
			p.mu.Unlock()
			return inst, nil
		}
	}
	p.mu.Unlock()
	return nil, p.noInstance(pid)
}

func (p *Pool) noInstance(pid int) error {
	var pids []int
	for _, inst := range p.Instances() {
		pids = append(pids, inst.PID)
	}
	return fmt.Errorf("runtime: no instance of %s with pid %d; there are %v", p.function.Name, pid, pids)
}

// working is what the process has been given and not answered, or nil.
func (i *instance) working(invocations *int) *invocation {
	i.mu.Lock()
	defer i.mu.Unlock()
	if invocations != nil {
		*invocations = i.invocations
	}
	if i.current == nil || i.current.done() {
		return nil
	}
	return i.current
}

func without(list []*instance, inst *instance) []*instance {
	return slices.DeleteFunc(list, func(other *instance) bool { return other == inst })
}
