package runtime

import "time"

// run brings one invocation that has a slot to its outcome and frees the slot.
func (p *Pool) run(inv *invocation, delivery chan<- Result) {
	defer p.work.Done()
	defer func() { <-p.slots }()
	for {
		inst, cold, err := p.take()
		if err != nil {
			inv.finish(cannotStart(inv.id, err))
			delivery <- inv.result(0, false)
			return
		}
		if cold {
			p.initialise(inst)
		}
		<-inst.ready
		deliver := func() { delivery <- inv.result(inst.pid(), cold) }
		if inst.failure != nil {
			inv.finish(inst.failure(inv.id))
			deliver()
			return
		}
		if inst.hand(inv) {
			p.supervise(inst, inv, deliver)
			return
		}
		if cold {
			// It had asked for work and ended before it got this.
			<-inst.exited
			inv.finish(exitError(inv.id, inst.cmd.ProcessState))
			deliver()
			return
		}
		// It died while it was idle; this invocation never reached it.
	}
}

func cannotStart(requestID string, err error) outcome {
	out := lambdaError(TypeInvalidEntrypoint, requestID, "%v", err)
	out.cut = true
	return out
}

// initialise starts the process and waits until it asks for work. If it does not, that is
// the outcome of all invocations that wait for it.
func (p *Pool) initialise(inst *instance) {
	defer close(inst.ready)
	if err := inst.launch(); err != nil {
		p.retire(inst)
		inst.failure = func(id string) outcome { return cannotStart(id, err) }
		return
	}
	select {
	case <-inst.first:
		return
	case <-inst.exited:
		inst.failure = func(id string) outcome { return exitError(id, inst.cmd.ProcessState) }
	case <-time.After(p.options.InitTimeout):
		p.retire(inst)
		inst.kill()
		inst.failure = func(id string) outcome {
			return timedOut(id, "Init timed out after %.2f seconds", p.options.InitTimeout.Seconds())
		}
	}
}

// supervise waits for the outcome, acts at the deadline, and returns when the
// worker is free again or the process has ended.
func (p *Pool) supervise(inst *instance, inv *invocation, deliver func()) {
	deadline := time.After(time.Until(inv.deadline))
	select {
	case <-inv.answered:
	case <-inst.exited:
		inv.finish(exitError(inv.id, inst.cmd.ProcessState)) // without effect if it had answered
		deliver()
		return
	case <-deadline:
		p.overdue(inst, inv, deliver)
		return
	}
	var kill <-chan time.Time
	if p.function.Concurrency == 1 {
		kill = deadline // the invocation is over when the process asks for the next
	}
	ready := time.After(readyTime)
	for {
		select {
		case <-inst.polled:
			if p.options.Freeze {
				inst.freeze()
			}
			p.release(inst)
			deliver()
			return
		case <-inst.exited:
			deliver()
			return
		case <-ready:
			deliver()
			deliver = func() {}
		case <-kill:
			p.retire(inst)
			inst.kill()
			deliver()
			return
		}
	}
}

// overdue ends a process that has one invocation at a time. A process that may have several
// keeps running, with the late handler: the handler's answer is dropped, but frees its
// worker. Only a process whose workers are all late is ended, since it can do no more work.
func (p *Pool) overdue(inst *instance, inv *invocation, deliver func()) {
	late := timedOut(inv.id, "Task timed out after %.2f seconds", p.function.Timeout.Seconds())
	if p.function.Concurrency == 1 {
		inv.finish(late)
		p.retire(inst)
		inst.kill()
		deliver()
		return
	}
	late.Killed = false
	inv.finish(late)
	deliver()
	if inst.overdue() {
		p.retire(inst)
		inst.kill()
		return
	}
	select {
	case <-inv.posted:
	case <-inst.exited:
		return
	}
	select {
	case <-inst.polled:
		p.release(inst)
	case <-inst.exited:
	}
}
