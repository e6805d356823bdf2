package secrets

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// overlap is how long a process may go on with a secret as its current one after a newer one
	// has come into use: the time for a deployment, and for going back to the version before it.
	overlap = 7 * 24 * time.Hour
	// remembered is how long a process goes by what it has read of a register.
	remembered = time.Hour
)

// remembered is what a process knows of a register.
type reading struct {
	lock  chan struct{} // a mutex whose wait ends with the context
	at    time.Time
	chain []*secret
}

// which is a register as the declarations of one list of secrets read it.
type which struct {
	checks    string // not the secrets: it outlives the declaration
	operation string
}

// chain lists the secrets that a record of the process may be under, the oldest first: those in
// the register up to the current one, which is entered if it is not there and enter is set.
func (s *Secrets) chain(ctx context.Context, p *protocol.Place, operation string, enter bool) ([]*secret, protocol.Rotation, error) {
	store, ok := p.Store.(protocol.Rotation)
	if !ok {
		return nil, nil, refuse("the store keeps no register of secrets: it must be a protocol.Rotation")
	}
	found, _ := p.Known.LoadOrStore(which{s.checks, operation}, &reading{lock: make(chan struct{}, 1)})
	known := found.(*reading)
	select {
	case known.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, &protocol.StoreError{Op: "Register", Err: context.Cause(ctx)}
	}
	defer func() { <-known.lock }()
	if since := p.Now().Sub(known.at); known.chain != nil && since >= 0 && since < remembered {
		return known.chain, store, nil
	}
	for range maxRounds {
		reg, err := store.Register(ctx, operation)
		if err != nil {
			return nil, nil, err
		}
		chain, next, err := s.read(reg, operation, p.Now())
		if err != nil {
			return nil, nil, err
		}
		if next != nil && !enter {
			return chain, store, nil
		}
		if next != nil {
			err := store.SetRegister(ctx, p.Now(), *next)
			if _, refused := errors.AsType[*protocol.ConflictError](err); refused {
				continue
			}
			if err != nil {
				return nil, nil, err
			}
		}
		known.chain, known.at = chain, p.Now()
		return chain, store, nil
	}
	return nil, nil, &protocol.StoreError{Op: "SetRegister", Err: errors.New("the register changes all the time")}
}

// read gives the chain by the register, and the register with the current secret if that is not
// in it. A secret in it that the process should have, and has not, is an error: what is recorded
// under it would read as absent.
func (s *Secrets) read(reg *protocol.Register, operation string, now time.Time) (chain []*secret, next *protocol.Register, err error) {
	current := &s.known[0]
	if reg == nil {
		next = &protocol.Register{Operation: operation, Version: 1}
		if s.was && current.key != nil {
			chain = append(chain, &plain)
			next.Secrets = append(next.Secrets, protocol.RegisteredSecret{Check: forPlain, Since: now})
		}
		next.Secrets = append(next.Secrets, protocol.RegisteredSecret{Check: current.check, Since: now})
		return append(chain, current), next, nil
	}
	if s.was && !slices.ContainsFunc(reg.Secrets, func(r protocol.RegisteredSecret) bool { return r.Check == forPlain }) {
		return nil, nil, refuse("the register of operation %s says that it never had records without a secret, and this process says that it had: "+
			"if it had none, use secrets.New; if it had, records without a secret may have been overlooked since the register was made", operation)
	}
	for i, r := range reg.Secrets {
		if r.Check == current.check {
			if r.Retired {
				return nil, nil, refuse("the current secret of operation %s, %s, was retired: make a new one", operation, r.Check)
			}
			if i+1 < len(reg.Secrets) && now.Sub(reg.Secrets[i+1].Since) > overlap {
				return nil, nil, refuse("the current secret of operation %s, %s, was replaced by %s more than %v ago: make the newest one the current one",
					operation, r.Check, reg.Secrets[i+1].Check, overlap)
			}
			return append(chain, current), nil, nil
		}
		if r.Retired {
			continue
		}
		k := s.find(r.Check)
		if k == nil {
			return nil, nil, refuse("records of operation %s may be under the secret %s, which this process does not have: "+
				"list it beside the current one until it is retired", operation, r.Check)
		}
		chain = append(chain, k)
	}
	next = reg.Clone()
	next.Version++
	next.Secrets = append(next.Secrets, protocol.RegisteredSecret{Check: current.check, Since: now})
	return append(chain, current), next, nil
}

// find returns the secret with the check value. Everybody has the one that stands for none.
func (s *Secrets) find(check string) *secret {
	if check == forPlain {
		return &plain
	}
	for i := range s.known {
		if s.known[i].check == check {
			return &s.known[i]
		}
	}
	return nil
}
