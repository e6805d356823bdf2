package story

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// Event makes what a line of a transcript says that happens, which is about the text after its colon. What it returns
// is printed.
type Event func(about string) (output string)

// Happens makes what the line says: that time passes, such as "1h later", or one of the service's events or of more.
func (s *Service) Happens(line string, more map[string]Event) (output string) {
	s.t.Helper()
	if span, err := time.ParseDuration(strings.TrimSuffix(line, " later")); err == nil {
		s.Clock.Advance(span)
		return ""
	}
	name, about, _ := strings.Cut(line, ": ")
	event := more[name]
	if event == nil {
		event = s.events()[name]
	}
	require.NotNil(s.t, event, "there is no event %q", name)
	return event(about)
}

func (s *Service) events() map[string]Event {
	return map[string]Event{
		// About keys, such as refund/acme/r-1.
		"unknown":                         OfEach(func(key idem.Key) { s.Unknown(key) }),
		"unknown after a step":            OfEach(s.stepped),
		"completed":                       OfEach(func(key idem.Key) { s.End(key, nil) }),
		"failed":                          OfEach(func(key idem.Key) { s.End(key, idem.Permanent(ErrCut)) }),
		"died":                            OfEach(func(key idem.Key) { s.Died(key, s.dies) }),
		"interrupted with a compensation": OfEach(s.interruptedToUndo),
		"interrupted":                     OfEach(s.Interrupted),
		"undoing":                         OfEach(s.Undoing),
		"the original ends":               OfEach(s.endLate),
		"bob resolves it to failed":       OfEach(func(key idem.Key) { s.Resolve(key.ID(), idem.Failed) }),
		"bob resolves it to completed":    OfEach(func(key idem.Key) { s.Resolve(key.ID(), idem.Completed) }),
		"bob resolves it to released":     OfEach(func(key idem.Key) { s.Resolve(key.ID(), idem.Released) }),
		"bob replaces it with completed": OfEach(func(key idem.Key) {
			require.NoError(s.t, s.Reconciler().Resolve(s.t.Context(), key.ID(),
				reconcile.Resolution{To: idem.Completed, Replace: true},
				reconcile.Change{Actor: "bob", Reason: "it was wrong", IfWrite: s.Record(key).Write}))
		}),
		"call": s.call,
		// About the keys of clients.
		"payment":             s.pay(func(context.Context) {}),
		"payment with a step": s.pay(func(ctx context.Context) { s.Step(ctx, "charge", func() {}) }),
		// What is wrong with the store.
		"requests are lost": s.always(idemtest.LoseRequest, idemtest.Settle),
		"a reply is lost, and the credentials are refused then": s.always(refusedThen, idemtest.Settle),
		"the store is down":      s.always(idemtest.Refuse),
		"records cannot be read": s.always(idemtest.Unreadable, idemtest.Get),
		"all is well again":      Act(func(string) { s.Faults.Heal() }),
		"a sweep":                Act(func(string) { s.sweep() }),
	}
}

// Act is an event that prints nothing.
func Act(do func(about string)) Event {
	return func(about string) string {
		do(about)
		return ""
	}
}

// OfEach is an event that is about keys.
func OfEach(do func(key idem.Key)) Event {
	return Act(func(about string) {
		for name := range strings.FieldsSeq(about) {
			do(Key(name))
		}
	})
}

func (s *Service) dies(context.Context, int) (int, error) {
	s.Crash()
	return 0, nil
}

func (s *Service) interruptedToUndo(key idem.Key) {
	s.Died(key, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "charge", func(context.Context) (int, error) { s.Crash(); return 7, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, int) error { return nil }})
	})
}

func (s *Service) stepped(key idem.Key) {
	_, err := idem.Do(s.t.Context(), s.Engine, key, 1, func(ctx context.Context, _ int) (int, error) {
		s.Step(ctx, "reserve", func() {})
		return 0, ErrCut
	})
	require.Error(s.t, err)
}

func (s *Service) always(fault idemtest.Fault, methods ...idemtest.Method) Event {
	return Act(func(string) { s.Faults.Always(fault, methods...) })
}

func refusedThen(ctx context.Context, c *idemtest.Call) error {
	_ = c.Do(ctx)
	return &idem.StoreError{Op: string(c.Method), Ambiguous: true, Err: &idem.ConfigError{What: "dynamostore: table",
		Problem: "cannot be reached with these credentials"}}
}

// call says what the handler does, and what its caller gets. An order is charged and shipped.
func (s *Service) call(about string) string {
	did, key := "", Key(about)
	got, err := idem.Do(s.t.Context(), s.Engine, key, 1, func(ctx context.Context, n int) (int, error) {
		did += "the handler runs\n"
		if key.Operation().Name != Order.Name {
			return 7, nil
		}
		return order(func() { did += "it charges\n" }, func() { did += "it ships\n" })(ctx, n)
	})
	if err != nil {
		return did + "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("%s%d\n", did, got)
}

// pay says which response a client gets.
func (s *Service) pay(did func(context.Context)) Event {
	return func(about string) string {
		key, principal, _ := strings.Cut(about, " of ")
		res := s.Pay(key, principal, did)
		text := fmt.Sprintf("HTTP %d\n", res.Status)
		headers := map[string][]string{}
		maps.Copy(headers, res.MultiHeaders)
		for name, value := range res.Headers {
			headers[name] = append(headers[name], value)
		}
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			text += fmt.Sprintf("%s: %s\n", name, strings.Join(headers[name], ", "))
		}
		if len(res.Body) > 0 {
			text += string(res.Body) + "\n"
		}
		return text
	}
}

// endLate writes the outcome of the attempt that was parked.
func (s *Service) endLate(key idem.Key) {
	rec := s.Record(key)
	require.NoError(s.t, s.Store.Finish(s.t.Context(), s.Clock.Now(), protocol.Finish{
		ID: rec.ID, Owner: rec.Owner, Write: "late",
		Ending: protocol.Ending{State: protocol.Completed, Result: []byte("7"),
			ExpiresAt: s.Clock.Now().Add(time.Hour).UTC().Truncate(time.Second)},
	}))
}

// sweep makes a sweep without probes.
func (s *Service) sweep() {
	sweeper, err := reconcile.NewSweeper(s.Reconciler(), &reconcile.SweepOptions{Log: slog.New(slog.DiscardHandler)})
	require.NoError(s.t, err)
	_, err = sweeper.Sweep(s.t.Context())
	require.NoError(s.t, err)
}

// Everything is what the table has: its records, and the changes of them from outside.
func (s *Service) Everything() (all []any) {
	s.t.Helper()
	for _, rec := range s.Store.Records() {
		all = append(all, *rec)
	}
	paused, err := s.Store.ReadPaused(s.t.Context())
	require.NoError(s.t, err)
	all = append(all, paused)
	for shard := range protocol.AuditShards {
		changes, err := s.Store.AuditBetween(s.t.Context(), shard, time.Time{}, s.Clock.Now().Add(time.Hour), "")
		require.NoError(s.t, err)
		all = append(all, changes.Entries)
	}
	return all
}
