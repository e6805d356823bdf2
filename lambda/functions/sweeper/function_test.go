package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

func TestInvocationFailsIfNothingCouldBeDone(t *testing.T) {
	h := idemtest.New(t, nil)
	reconciler, err := reconcile.New(h.Faults, nil)
	require.NoError(t, err)
	sweeper, err := reconcile.NewSweeper(reconciler, nil)
	require.NoError(t, err)
	f := &function{sweeper}
	require.NoError(t, f.handle(t.Context()))
	h.Faults.Always(idemtest.Deny, idemtest.Due)
	require.EqualError(t, f.handle(t.Context()), "nothing could be done: idem: store: Due: idemtest: denied")
}
