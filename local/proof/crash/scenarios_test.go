package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// scenario is an operation of the matrix.
type scenario struct {
	name string
	// end is the state without a crash.
	end idem.State
	// asks says that the at-most-once step finds out what became of it.
	asks    bool
	handler func(*business, context.Context) (string, error)
	// refused says that the transaction is.
	refused bool
	// scant says that no result can be stored with its outcome.
	scant bool
	// refers says that the record has what the bank calls the payment, before anything is done.
	refers bool
	// parks says that one that is not repeatable is parked without a crash, too.
	parks bool
}

// endOf is the state without a crash.
func (sc scenario) endOf(r idem.Repeat) idem.State {
	if sc.parks && r == idem.NotRepeatable {
		return idem.Unknown
	}
	return sc.end
}

var scenarios = []scenario{
	{name: "order", end: idem.Completed, handler: func(w *business, ctx context.Context) (string, error) {
		return w.order(ctx, &idem.StepConfig[string]{Semantics: idem.AtMostOnce})
	}},
	{name: "order that asks the bank", end: idem.Completed, asks: true,
		handler: func(w *business, ctx context.Context) (string, error) {
			return w.order(ctx, &idem.StepConfig[string]{Semantics: idem.AtMostOnce, Interrupted: w.asked,
				NotFoundFinalAfter: idem.Immediately})
		}},
	{name: "order whose result is added later", end: idem.Completed, scant: true,
		handler: func(w *business, ctx context.Context) (string, error) {
			return w.order(ctx, &idem.StepConfig[string]{Semantics: idem.AtMostOnce})
		}},
	{name: "order that is declined", end: idem.Failed, handler: (*business).declined},
	{name: "order that the stock refuses", end: idem.Failed, refused: true,
		handler: func(w *business, ctx context.Context) (string, error) { return w.outOfStock(ctx, nil) }},
	{name: "order that the stock refuses, undone at the second try", end: idem.Failed, refused: true, parks: true,
		handler: func(w *business, ctx context.Context) (string, error) {
			return w.outOfStock(ctx, errors.New("the bank is busy"))
		}},
	{name: "order that says whom to ask", end: idem.Completed, refers: true,
		handler: func(w *business, ctx context.Context) (string, error) {
			if err := idem.SetReference(ctx, "payment-1"); err != nil {
				return "", err
			}
			return w.order(ctx, &idem.StepConfig[string]{Semantics: idem.AtMostOnce, Reference: "payment-1"})
		}},
}

// business is what the operation does to others, as they see it.
type business struct {
	mu sync.Mutex
	// runs counts the effects.
	runs map[string]int
	// recorded are the steps whose result has been written.
	recorded map[string]bool
	// wrong is what must not happen.
	wrong []error
	// dead says that the process has ended: it has no more effects.
	dead func() bool
	// pad makes the steps' results large: what follows its NUL does not count.
	pad string
	// put collects the row that commits with the outcome.
	put func(ctx context.Context, row string) error
}

func (w *business) effect(name string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead() {
		w.wrong = append(w.wrong, fmt.Errorf("%s runs in a dead process", name))
	}
	if w.recorded[name] {
		w.wrong = append(w.wrong, fmt.Errorf("%s runs although it is recorded", name))
	}
	w.runs[name]++
	return name, nil
}

func (w *business) note(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorded[name] = true
}

func (w *business) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.runs)
}

func (w *business) step(ctx context.Context, name string, c *idem.StepConfig[string]) (string, error) {
	v, err := idem.Step(ctx, name, func(context.Context) (string, error) {
		v, err := w.effect(name)
		return v + w.pad, err
	}, c)
	return cut(v), err
}

func cut(result string) string {
	result, _, _ = strings.Cut(result, "\x00")
	return result
}

// order reserves (at least once), charges (at most once), ships (at least once) and commits a row with its outcome.
func (w *business) order(ctx context.Context, charge *idem.StepConfig[string]) (string, error) {
	reserved, err := w.step(ctx, "reserve", nil)
	if err != nil {
		return "", err
	}
	charged, err := w.step(ctx, "charge", charge)
	if err != nil {
		return "", err
	}
	shipped, err := w.step(ctx, "ship", nil)
	if err != nil {
		return "", err
	}
	row := reserved + ", " + charged + ", " + shipped
	return row, w.put(ctx, row)
}

// asked is what the bank says of a charge that was interrupted.
func (w *business) asked(context.Context, time.Time) (string, error) {
	if w.counts()["charge"] == 0 {
		return "", idem.NotExecuted(errors.New("the bank does not know the payment"))
	}
	return "charge", nil
}

// paid is what is reserved and charged, and can be undone.
func (w *business) paid(ctx context.Context, undo func(context.Context, string) error) error {
	if _, err := w.step(ctx, "reserve", &idem.StepConfig[string]{Compensate: undo}); err != nil {
		return err
	}
	_, err := w.step(ctx, "charge", &idem.StepConfig[string]{Semantics: idem.AtMostOnce, Compensate: undo})
	return err
}

// declined is an order whose last step fails permanently, and which is undone.
func (w *business) declined(ctx context.Context) (string, error) {
	undo := func(_ context.Context, result string) error {
		_, err := w.effect("undo " + cut(result))
		return err
	}
	if err := w.paid(ctx, undo); err != nil {
		return "", err
	}
	_, err := idem.Step(ctx, "ship", func(context.Context) (string, error) {
		_, _ = w.effect("ship")
		return "", idem.Permanent(errors.New("no carrier delivers there"))
	}, nil)
	return "", idem.PermanentStep(err)
}

// outOfStock is an order whose transaction is refused until something of it has been undone: from then on it would go
// through. The first try to undo the reservation fails with busy.
func (w *business) outOfStock(ctx context.Context, busy error) (string, error) {
	undo := func(_ context.Context, result string) error {
		_, err := w.effect("undo " + cut(result))
		if err == nil && cut(result) == "reserve" && w.counts()["undo reserve"] == 1 {
			return busy
		}
		return err
	}
	if err := w.paid(ctx, undo); err != nil {
		return "", err
	}
	u, err := idem.UnitOf(ctx, func() idem.Unit { return &row{text: "reserve, charge", refuse: w.refuses} })
	if err != nil {
		return "", err
	}
	return u.(*row).text, nil
}

func (w *business) refuses() error {
	if w.counts()["undo charge"] > 0 {
		return nil
	}
	return idem.Permanent(errors.New("no carrier delivers there"))
}
