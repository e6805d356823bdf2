package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/idem-go/idempotency/idem/outbox"
)

// Errors of a call to the other system.
var (
	// ErrRejected: the effect did not take place, and never will.
	ErrRejected = errors.New("the other system has rejected the call")
	// ErrNotSent: the other system has not got the call, and never will.
	ErrNotSent = errors.New("the call was not sent to the other system")
	// ErrNoReply: the effect may have taken place.
	ErrNoReply = errors.New("the other system has not replied")
)

// effect is one of the other systems' effects.
type effect struct {
	made, undone, stands, most int
	answers                    map[string]error // by the token, which is answered as the first time
}

// System declares another system. The effects of an optional one may be missing, and may stand when the
// operation has failed.
func (w *World) System(name string, optional bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.systems[name] = optional
}

// Effect has an effect take place in another system, or undoes it. A token that was sent before changes
// nothing. The empty one is no token.
func (w *World) Effect(ctx context.Context, system, name, token string, undo bool) error {
	p, err := w.caller(ctx, system, name)
	if err != nil {
		return err
	}
	call := system + ": " + name
	if undo {
		call = system + ": undo " + name
	}
	arrives := func(answer error) func() error {
		return func() error { return w.arrive(system, name, token, undo, answer) }
	}
	return p.effectCall(ctx, call, outcomes{made: arrives(nil), late: arrives(nil), refused: arrives(ErrRejected)})
}

// Ask asks another system whether an effect took place that was sent with the token. One that was rejected is
// [ErrRejected]. Without a token the answer is whether an effect stands, and there is none while a call may be on its
// way.
func (w *World) Ask(ctx context.Context, system, name, token string) (found bool, err error) {
	p, err := w.caller(ctx, system, name)
	if err != nil {
		return false, err
	}
	ask := func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		e := w.effects[system+": "+name]
		if token == "" && (len(w.late) > 0 || slices.ContainsFunc(w.processes, (*process).isFrozen)) {
			return ErrNoReply
		}
		if e == nil || token == "" {
			found = e != nil && e.stands > 0
			return nil
		}
		answer, known := e.answers[token]
		found = known && answer == nil
		return answer
	}
	unanswered := func() error { return ErrNoReply }
	err = p.effectCall(ctx, system+": ask about "+name, outcomes{made: ask, late: unanswered, refused: unanswered})
	return found && err == nil, err
}

// caller is the process that calls another system.
func (w *World) caller(ctx context.Context, system, name string) (*process, error) {
	p, _ := ctx.Value(processKey{}).(*process)
	if p == nil || p.w != w {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mistake = fmt.Errorf("%s: %s is called with a context that is not of a handler of this run: pass on the one "+
			"that the handler gets, and make fakes in the scenario", system, name)
		return nil, w.mistake
	}
	return p, nil
}

// effectCall makes a call to another system. If the process is killed it does not return: nothing of
// the process continues.
func (p *process) effectCall(ctx context.Context, call string, o outcomes) error {
	o.lost = func() error { return ErrNoReply }
	if p.isDead() {
		runtime.Goexit()
	}
	if p.w.chance.crowd && ctx.Err() != nil {
		return ErrNoReply
	}
	err := p.call(ctx, call, o)
	if p.w.chance.crowd && p.w.Draw(ctx, 2) == 1 {
		if p.w.Pause(ctx, slowest); ctx.Err() != nil {
			err = ErrNoReply
		}
		p.wait()
	}
	if p.isDead() {
		runtime.Goexit()
	}
	return err
}

// arrive returns the other system's answer to a call that it gets.
func (w *World) arrive(system, name, token string, undo bool, answer error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	name = system + ": " + name
	e := w.effects[name]
	if e == nil {
		e = &effect{answers: map[string]error{}}
		w.effects[name] = e
	}
	if token != "" {
		if undo {
			token = "undo " + token
		}
		if first, known := e.answers[token]; known {
			return first
		}
		e.answers[token] = answer
	}
	switch {
	case answer != nil:
	case undo:
		e.undone++
		e.stands = max(e.stands-1, 0)
	default:
		e.made++
		e.stands++
		e.most = max(e.most, e.stands)
	}
	return answer
}

// stands is how often each effect stands that has taken place, by its name. Transactions and their messages
// are effects.
func (w *World) stands() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]int{}
	for name, e := range w.effects {
		if e.stands > 0 {
			all[name] = e.stands
		}
	}
	for _, u := range w.Store.Units() {
		all["transaction"]++
		if p, ok := u.(interface{ Messages() []outbox.Message }); ok {
			for _, m := range p.Messages() {
				all["message to "+m.Destination]++
			}
		}
	}
	return all
}
