package main

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemtest"
)

// Ctrl-C ends a long list with what was found, and with the page to continue with.
func TestCtrlCDuringALongListShowsWhatWasFound(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		for i := range 160 {
			b.Unknown(refund.Key("acme", "r-"+strconv.Itoa(i)))
		}
		ctx, interrupt := context.WithCancel(t.Context())
		b.ctx = ctx
		var queries atomic.Int32
		b.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if queries.Add(1) == 20 {
				interrupt()
			}
			return errors.Join(ctx.Err(), c.Do(ctx))
		}, idemtest.Due)
		out, errs := b.want(exitFailed, "list", "--limit", "1000")
		require.Equal(t, "idemctl: interrupted", errs)
		_, page, more := strings.Cut(out, "--page '")
		require.True(t, more)
		page, _, _ = strings.Cut(page, "'")

		b.ctx = t.Context()
		b.Faults.Heal()
		rest, _ := b.want(exitDone, "list", "--limit", "1000", "--page", page)
		require.NotContains(t, rest, "--page")
		found := strings.Count(out, "\n  acme#refund#")
		require.Positive(t, found)
		require.Equal(t, 160, found+strings.Count(rest, "\n  acme#refund#"))
	})
}

func TestColourIsForTerminals(t *testing.T) {
	changing(t, func(b *rig) {
		var out, errs bytes.Buffer
		term := &terminal{in: b, out: &out, err: &errs, colour: true}
		code := run(b.ctx, []string{"list"}, term, b.outside())
		require.Equal(b.t, exitDone, code)
		require.Contains(b.t, out.String(), "\x1b[31munknown\x1b[0m")
	})
}

func TestProgressIsForTerminalsAndLongReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		s := &session{terminal: &terminal{err: &errs, watched: true}}
		p := s.progress()
		p.say("read %d", 1)
		require.Empty(t, errs.String())
		time.Sleep(patience)
		p.say("read %d", 2)
		p.say("read %d", 3)
		p.done()
		require.Equal(t, "\r\x1b[Kread 2\r\x1b[K", errs.String())

		errs.Reset()
		s.watched = false
		p = s.progress()
		time.Sleep(patience)
		p.say("read %d", 1)
		p.done()
		require.Empty(t, errs.String())
	})
}
