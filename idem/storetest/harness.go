package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Harness is a store under test and what can be done to it from outside. Each
// case gets a fresh one.
type Harness struct {
	// Store is empty, or at least shares no record with another case. Required.
	Store protocol.Store

	// Delete removes a record behind the store's back, as TTL would. Required.
	Delete func(ctx context.Context, id string) error

	// WithoutSteps says that the store refuses RecordStep with
	// errors.ErrUnsupported. Cases with steps are left out then, and the refusal is
	// checked instead.
	WithoutSteps bool

	// MaxResult is the largest result that the store takes, in bytes. With zero no
	// result of up to 6 MB may be refused.
	MaxResult int

	// Parallel lets groups of cases run at once, each on harnesses of their own: open is
	// called from several goroutines then.
	Parallel bool

	// Damages are ways to make stored forms unreadable; each is a case of its own. Without
	// any a skipped case says that failing closed is not tested.
	Damages []Damage

	// Scanner lists all records of the Store. Nil if it has none.
	Scanner protocol.Scanner

	// Unit returns a unit of work that the store commits with Finish, and a function that
	// reports whether it has been applied. Nil for a store that refuses every unit with
	// errors.ErrUnsupported.
	Unit func(ctx context.Context) (unit protocol.Unit, applied func(context.Context) (bool, error), err error)
}

// Damage is one way to make a stored form unreadable.
type Damage struct {
	// Name of the damage, such as "newer version"; it names the subtest.
	Name string
	// Parts says that the damage is to the stored result of a large outcome: the
	// record stays readable and its result does not. Otherwise the record is damaged.
	Parts bool
	// Do damages what is stored of the record.
	Do func(ctx context.Context, id string) error
}

// Run checks a store. It calls open once for each case, and once more at first.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	first := open(t)
	if first.Store == nil || first.Delete == nil {
		t.Fatal("storetest: the harness needs a Store and a Delete")
	}
	for _, g := range suite(first) {
		t.Run(g.name, func(t *testing.T) {
			if first.Parallel {
				t.Parallel()
			}
			for _, tc := range g.cases {
				t.Run(tc.name, func(t *testing.T) {
					tc.run(newCell(t, t.Context(), open(t)))
				})
			}
		})
	}
}

// check is one case of the suite.
type check struct {
	name string
	run  func(c *cell)
}

// withSteps are cases for stores that record steps.
func withSteps(steps bool, cases ...check) []check {
	if !steps {
		return nil
	}
	return cases
}

type group struct {
	name  string
	cases []check
}

// suite lists the cases that apply to a store with the harness's abilities.
func suite(h Harness) []group {
	steps := !h.WithoutSteps
	return []group{
		{"claim", claimCases(steps)},
		{"race", raceCases(steps)},
		{"fencing", fencingCases(steps)},
		{"lost reply", lostReplyCases(steps)},
		{"write id", writeIDCases(steps)},
		{"delayed", delayedCases(steps)},
		{"late outcome", lateCases(steps)},
		{"commit", commitCases(h)},
		{"accept", acceptCases(h)},
		{"expiry", expiryCases(steps)},
		{"step", stepCases(steps)},
		{"settle", settleCases(steps)},
		{"copy", copyCases(steps)},
		{"result", resultCases(h)},
		{"added result", upgradeCases(h)},
		{"unreadable", unreadableCases(h)},
		{"plain", plainCases(h)},
		{"watched", watchedCases(steps)},
		{"reference", referenceCases(steps)},
		{"questions", slices.Concat(questionCases(h), newQuestionCases(h))},
		{"prolonged", prolongCases(h)},
		{"scan", scanCases(h)},
		{"random", randomCases(steps)},
	}
}
