package idemtest

import (
	"context"
	"crypto/rand"
)

// The handler of the page with its mistake: its method has the same name without it.

type Booking struct {
	ID    string
	Cents int
}

type Bank interface {
	Charge(ctx context.Context, token string, cents int) (charge string, err error)
}

type Desk struct{ Bank Bank }

func (d *Desk) Book(ctx context.Context, b Booking) (string, error) {
	return d.Bank.Charge(ctx, rand.Text(), b.Cents)
}
