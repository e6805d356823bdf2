package idem_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
)

// release makes the fingerprint of an input.
type release func(input string) idem.Fingerprint

func version1(input string) idem.Fingerprint { return fingerprint.Bytes([]byte(input)) }

func version2(input string) idem.Fingerprint {
	return protocol.FingerprintOf(2, sha256.Sum256([]byte("another form of "+input)))
}

// releases are the steps of an upgrade: this one; one that compares version 2, and still writes version 1; one that
// writes version 2, and still compares version 1.
var releases = map[string]release{
	"A": version1,
	"B": func(input string) idem.Fingerprint { return version1(input) + " " + version2(input) },
	"C": func(input string) idem.Fingerprint { return version2(input) + " " + version1(input) },
}

// process is one of a release.
type process struct {
	*rig
	of  release
	key idem.Key
}

func (p *process) call(ctx context.Context, input string, run func(context.Context) error) (idem.Outcome, error) {
	return p.engine.Execute(ctx, idem.Call{Key: p.key, Fingerprint: p.of(input),
		Run: func(ctx context.Context) idem.Answer { return idem.Answer{Err: run(ctx), Body: []byte("1")} }})
}

// upgraded are two processes on the same records.
func upgraded(t *testing.T, op idem.Operation, from, to string) (before, after *process) {
	mem, clock := memstore.New(), new(idemtest.Clock)
	key := op.Key("t", "k")
	of := func(name string) *process { return &process{rigOver(t, mem, clock, nil), releases[name], key} }
	return of(from), of(to)
}

// In a rolling deployment, and after a rollback of it, two releases meet each other's records.
var deployments = [][2]string{{"A", "A"}, {"A", "B"}, {"B", "A"}, {"B", "C"}, {"C", "B"}, {"C", "C"}, {"A", "C"}}

var succeeds = func(context.Context) error { return nil }

// A retry that meets the record of another release gets its outcome, whatever it is, and another input does not.
func TestARetryAcrossAnUpgradeOfTheFingerprint(t *testing.T) {
	keyed := secrets.New([]byte("0123456789abcdef0123456789abcdef"))
	plain := idem.Operation{Name: "op", Repeat: idem.Repeatable}
	secret, atomic, careful := plain, plain, plain
	secret.Values, atomic.Mode, careful.Repeat = keyed, idem.Atomic, idem.NotRepeatable
	for name, c := range map[string]struct {
		op    idem.Operation
		first error // of the handler
		runs  bool  // the retry runs it again
		want  any   // of the retry: see expect
	}{
		"completed":                {plain, nil, false, nil},
		"completed, with a secret": {secret, nil, false, nil},
		"completed, atomic":        {atomic, nil, false, nil},
		"failed":                   {plain, idem.Permanent(errPlain), false, new(*idem.RecordedError)},
		"released":                 {plain, errPlain, true, nil},
		"released, with a secret":  {secret, errPlain, true, nil},
		"unknown":                  {careful, errPlain, false, idem.ErrOutcomeUnknown},
	} {
		for _, d := range deployments {
			t.Run(fmt.Sprint(name, ", ", d[0], " to ", d[1]), func(t *testing.T) {
				before, after := upgraded(t, c.op, d[0], d[1])
				runs := 0
				_, err := before.call(t.Context(), "in", func(context.Context) error { runs++; return c.first })
				require.Equal(t, c.first != nil, err != nil)
				stored := before.record(t, before.key).Fingerprint
				require.NotContains(t, stored, " ", "a record has one version")
				require.Equal(t, before.of("in")[:2], stored[:2], "the first of the release")

				_, err = after.call(t.Context(), "another", succeeds)
				require.ErrorIs(t, err, idem.ErrKeyReused)
				_, err = after.call(t.Context(), "in", func(context.Context) error { runs++; return nil })
				require.Equal(t, map[bool]int{false: 1, true: 2}[c.runs], runs)
				expect(t, c.want, err)

				// The release of before meets what the other one has left.
				_, err = before.call(t.Context(), "in", func(context.Context) error { t.Error("it runs again"); return nil })
				expect(t, c.want, err)
				_, err = before.call(t.Context(), "another", succeeds)
				require.ErrorIs(t, err, idem.ErrKeyReused)
			})
		}
	}
}

// A duplicate that comes while the handler of another release runs is in flight.
func TestADuplicateAcrossAnUpgradeOfTheFingerprint(t *testing.T) {
	for _, d := range deployments {
		before, after := upgraded(t, idem.Operation{Name: "op"}, d[0], d[1])
		_, err := before.call(t.Context(), "in", func(ctx context.Context) error {
			for _, p := range []*process{before, after} {
				_, err := p.call(t.Context(), "in", func(context.Context) error { t.Error("it runs twice"); return nil })
				require.ErrorIs(t, err, idem.ErrInFlight, "%v", d)
				_, err = p.call(t.Context(), "another", succeeds)
				require.ErrorIs(t, err, idem.ErrKeyReused, "%v", d)
			}
			return nil
		})
		require.NoError(t, err)
	}
}

// A release that skipped the step in between is not run together with the one after it: it fails closed, and changes
// nothing.
func TestAnOldReleaseMeetsANewFingerprint(t *testing.T) {
	for _, op := range []idem.Operation{{Name: "op", Repeat: idem.Repeatable}, {Name: "op"},
		{Name: "op", Repeat: idem.Repeatable, Mode: idem.Atomic},
		{Name: "op", Values: secrets.New([]byte("0123456789abcdef0123456789abcdef"))}} {
		for _, end := range []error{nil, errPlain} {
			before, after := upgraded(t, op, "C", "A")
			_, _ = before.call(t.Context(), "in", func(context.Context) error { return end })
			if end != nil && op.Mode == idem.Atomic {
				continue // which leaves no record
			}
			rec := before.record(t, before.key)
			for _, input := range []string{"in", "another"} {
				_, err := after.call(t.Context(), input, func(context.Context) error { t.Error("it runs"); return nil })
				require.ErrorIs(t, err, idem.ErrRecordUnreadable)
			}
			require.Equal(t, rec, before.record(t, before.key))
		}
	}
}
