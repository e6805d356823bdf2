package secrets_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/secrets"
)

func TestRotation(t *testing.T) {
	r := newRig(t)
	a := r.process(secrets.New(secretA))
	one := a.runs("one")
	require.Equal(t, "a", r.register())
	a.replays("one", one)

	b := r.process(secrets.New(secretB, secretA))
	b.replays("one", one)
	two := b.runs("two")
	require.Equal(t, "a b", r.register())
	b.replays("two", two)
	a.replays("one", one)
	a.refuses("two", "under a secret that this process does not have")
	three := a.runs("three")
	b.replays("three", three)

	c := r.process(secrets.New(secretC, secretA, secretB))
	c.replays("one", one)
	c.replays("two", two)
	c.replays("three", three)
	four := c.runs("four")
	require.Equal(t, "a b c", r.register())
	a2 := r.process(secrets.New(secretA, secretC, secretB))
	a2.replays("two", two)
	a2.replays("four", four)
	b2 := r.process(secrets.New(secretB, secretC, secretA))
	b2.replays("four", four)
	b2.replays("one", one)
	five := b2.runs("five")
	c.replays("five", five)
	a2.replays("five", five)

	// What has expired under a former secret is executed again under the current one.
	r.clock.Advance(25 * time.Hour)
	again := c.runs("one")
	b2.replays("one", again)
	a2.replays("one", again)
	a.refuses("one", "under a secret that this process does not have")
}

func TestFromPlainToASecret(t *testing.T) {
	r := newRig(t)
	plain := r.process(nil)
	one := plain.runs("one")
	announced := r.process(secrets.StillPlain(secretB))
	announced.replays("one", one)
	two := announced.runs("two")
	plain.replays("two", two)
	require.Equal(t, "plain", r.register())

	b := r.process(secrets.AfterPlain(secretB))
	b.replays("one", one)
	b.replays("two", two)
	three := b.runs("three")
	require.Equal(t, "plain b", r.register())
	announced.replays("three", three)
	plain.refuses("three", "has moved under a secret")
	four := plain.runs("four")
	b.replays("four", four)
	r.process(secrets.New(secretB)).replays("four", four)
}

func TestAWrongSecretFailsClosed(t *testing.T) {
	r := newRig(t)
	one := r.process(secrets.New(secretA)).runs("one")
	for range 2 {
		r.process(secrets.New(secretB)).refuses("one", "which this process does not have: list it beside the current one until it is retired")
		r.process(secrets.AfterPlain(secretA)).refuses("one", "never had records without a secret")
		r.process(secrets.StillPlain(secretB)).refuses("one", "never had records without a secret")
	}
	require.Equal(t, "a", r.register())
	r.process(secrets.New(secretA)).replays("one", one)
}
