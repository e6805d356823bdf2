package secrets

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// maxRounds bounds how often a record is followed that changes all the time.
	maxRounds = 8
	// markLife is how long a mark is kept: a day longer than overlap, for what a process has
	// remembered of the register, and for clocks.
	markLife = overlap + 24*time.Hour
)

// name is a key of an operation with secrets.
type name struct {
	secrets      *Secrets
	start, value string
}

func (n *name) operation() string {
	_, op, _ := strings.Cut(n.start, "#")
	return strings.TrimSuffix(op, "#")
}

func (n *name) id(k *secret) string { return k.id(n.start, n.value) }

func (n *name) home(k *secret, seen *protocol.Record) protocol.Home {
	id := n.id(k)
	return protocol.Home{ID: id, Seen: seen, MayMove: len(n.secrets.known) > 1, Fingerprint: k.fingerprint(id)}
}

// Current implements [protocol.Name].
func (n *name) Current() protocol.Home { return n.home(&n.secrets.known[0], nil) }

// Claim implements [protocol.Name]. It goes from the oldest secret to the current one. A key that
// has a record under a former secret is claimed there. Where there is none it leaves a mark, so
// that nobody makes one: who claims under that secret finds the mark by its own condition.
func (n *name) Claim(ctx context.Context, p *protocol.Place) (protocol.Home, error) {
	chain, store, err := n.secrets.chain(ctx, p, n.operation(), true)
	if err != nil {
		return protocol.Home{}, err
	}
	for i, k := range chain[:len(chain)-1] {
		rec, err := n.mark(ctx, p, store, n.id(k), n.id(chain[i+1]))
		switch {
		case err != nil:
			return protocol.Home{}, err
		case rec == nil || rec.State == protocol.Moved && n.leadsInto(chain[i+1:], rec.MovedTo):
		case rec.State == protocol.Moved:
			return n.Follow(rec)
		default:
			h := n.home(k, rec)
			h.Former = true
			return h, nil
		}
	}
	return n.home(chain[len(chain)-1], nil), nil
}

// mark puts a mark, unless there is a record that is not over, or a mark: it returns that. Who is
// about to claim a record that is over there, and the mark, have the same condition: one of them lands.
func (n *name) mark(ctx context.Context, p *protocol.Place, store protocol.Rotation, id, to string) (*protocol.Record, error) {
	now := p.Now()
	m := protocol.Move{ID: id, To: to, Write: newID(), ExpiresAt: now.Add(markLife).Truncate(time.Second)}
	for range maxRounds {
		err := store.Move(ctx, now, m)
		conflict, refused := errors.AsType[*protocol.ConflictError](err)
		if !refused {
			return nil, err
		}
		rec := conflict.Existing
		if rec == nil {
			if rec, err = p.Store.Get(ctx, id); err != nil {
				return nil, err
			}
		}
		switch {
		case rec == nil:
			m.Seen = ""
		case over(rec, p):
			m.Seen = rec.Write
		default:
			return rec, nil
		}
	}
	return nil, &protocol.StoreError{Op: "Move", Err: errors.New("the record changes all the time")}
}

// over reports whether the record says nothing of its key any more.
func over(rec *protocol.Record, p *protocol.Place) bool {
	return rec.Expired(p.Now().Add(-p.Margin)) || rec.Unexecuted()
}

// leadsInto reports whether the id is that under one of the secrets.
func (n *name) leadsInto(chain []*secret, id string) bool {
	for _, k := range chain {
		if n.id(k) == id {
			return true
		}
	}
	return false
}

// Find implements [protocol.Name].
func (n *name) Find(ctx context.Context, p *protocol.Place) (protocol.Home, error) {
	chain, _, err := n.secrets.chain(ctx, p, n.operation(), false)
	if err != nil {
		return protocol.Home{}, err
	}
	h := n.home(chain[0], nil)
	for i := range chain {
		if h = n.home(chain[i], nil); i == len(chain)-1 {
			break
		}
		rec, err := p.Store.Get(ctx, h.ID)
		switch {
		case err != nil:
			return protocol.Home{}, err
		case rec == nil || over(rec, p) || rec.State == protocol.Moved && n.leadsInto(chain[i+1:], rec.MovedTo):
		case rec.State == protocol.Moved:
			if h, err = n.Follow(rec); err != nil {
				return protocol.Home{}, err
			}
		default:
			h.Seen = rec
			return h, nil
		}
	}
	for range maxRounds {
		if h.Seen, err = p.Store.Get(ctx, h.ID); err != nil {
			return protocol.Home{}, err
		}
		if h.Seen == nil || h.Seen.State != protocol.Moved {
			return h, nil
		}
		if h, err = n.Follow(h.Seen); err != nil {
			return protocol.Home{}, err
		}
	}
	return protocol.Home{}, circular(h.ID)
}

// Follow implements [protocol.Name].
func (n *name) Follow(mark *protocol.Record) (protocol.Home, error) {
	for i := range n.secrets.known {
		if k := &n.secrets.known[i]; n.id(k) == mark.MovedTo && mark.MovedTo != mark.ID {
			return n.home(k, nil), nil
		}
	}
	return protocol.Home{}, refuse("record %s has moved to %s, under a secret that this process does not have: "+
		"give the secret to all processes before any makes it the current one", mark.ID, mark.MovedTo)
}

func circular(id string) error { return refuse("the marks at record %s lead in a circle", id) }

// refuse is the error of a call that must not run.
func refuse(format string, args ...any) error {
	return &protocol.StoreError{Op: "secrets", Err: &protocol.ConfigError{What: "secrets", Problem: fmt.Sprintf(format, args...)}}
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
