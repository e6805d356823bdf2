package idemtest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
)

// The handler of the page, and its test.

var Book = idem.Operation{Name: "book", Repeat: idem.Repeatable}

type (
	Booking = idemtest.Booking
	Bank    = idemtest.Bank
)

type Desk struct{ Bank Bank }

func (d *Desk) Book(ctx context.Context, b Booking) (string, error) {
	charge, err := d.Bank.Charge(ctx, idem.Token(ctx), b.Cents)
	if errors.Is(err, ErrDeclined) {
		return "", idem.Permanent(err)
	}
	return charge, err
}

var ErrDeclined = errors.New("the card was declined")

type fakeBank struct{ *idemtest.Provider }

func (f fakeBank) Charge(ctx context.Context, token string, cents int) (string, error) {
	err := f.Do(ctx, "charge", token)
	if errors.Is(err, idemtest.ErrRejected) {
		return "", ErrDeclined
	}
	return "ch_1", err
}

func TestBook(t *testing.T) {
	idemtest.Explore(t, func(w *idemtest.World) {
		bank := fakeBank{w.Provider("bank")}
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			desk := &Desk{Bank: bank}
			b := Booking{ID: "b-1", Cents: 4200}
			return idem.Do(ctx, e, Book.Key("acme", b.ID), b, desk.Book)
		})
	}).Golden(t, "testdata/book.txt")
}

// The same booking, which is accepted for later.
func TestBookLater(t *testing.T) {
	idemtest.Explore(t, func(w *idemtest.World) {
		bank := fakeBank{w.Provider("bank")}
		w.StreamWorker(Book, func(ctx context.Context, e *idem.Engine, id string) error {
			desk := &Desk{Bank: bank}
			res, err := later.Work(ctx, e, Book, id, desk.Book)
			if res.Outcome.RecordState == idem.Failed {
				return nil
			}
			return err
		})
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			b := Booking{ID: "b-1", Cents: 4200}
			res, err := later.Accept[string](ctx, e, Book.Key("acme", b.ID), b, nil)
			if err == nil && res.Outcome.RecordState != idem.Completed {
				err = errors.New("accepted")
			}
			return res.Value, err
		})
	}).Golden(t, "testdata/book_later.txt")
}

// A message brings the worker of the booking.
func TestBookByMessage(t *testing.T) {
	idemtest.Explore(t, func(w *idemtest.World) {
		bank := fakeBank{w.Provider("bank")}
		enqueue := func(ctx context.Context, id string) error {
			dynamostore.TxOf(ctx).Publish("work", outbox.Message{Destination: "trips", Type: "trip", Body: []byte(id)})
			return nil
		}
		w.Worker("trips", func(ctx context.Context, e *idem.Engine, body []byte) error {
			desk := &Desk{Bank: bank}
			res, err := later.Work(ctx, e, Book, string(body), desk.Book)
			if res.Outcome.RecordState == idem.Failed {
				return nil
			}
			return err
		})
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			b := Booking{ID: "b-1", Cents: 4200}
			res, err := later.Accept[string](ctx, e, Book.Key("acme", b.ID), b, enqueue)
			if err == nil && res.Outcome.RecordState != idem.Completed {
				err = errors.New("accepted")
			}
			return res.Value, err
		})
	})
}

// The page has what Explore prints.
func TestThePageOfExplore(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	table, err := os.ReadFile("testdata/book.txt")
	require.NoError(t, err)
	const twice = "bank: charge took place more than once"
	run := idemtest.RunOf(t, twice, func(w *idemtest.World) {
		desk := &idemtest.Desk{Bank: fakeBank{w.Provider("bank")}}
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			b := Booking{ID: "b-1", Cents: 4200}
			return idem.Do(ctx, e, Book.Key("acme", b.ID), b, desk.Book)
		})
	})
	for _, text := range []string{twice + ":\n  " + strings.Join(run, "\n  ") + "\n", string(table)} {
		require.Contains(t, string(page), "```text\n"+text+"```\n", "put what Explore prints into the page")
	}
}
