package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// refusing is a table that answers each read with an error.
type refusing struct {
	reconcile.Store
	code string
}

func (r refusing) Get(context.Context, string) (*idem.Record, error) {
	return nil, fmt.Errorf("it is refused: %w", &smithy.GenericAPIError{Code: r.code})
}

// readOnly is a table for those who may only look.
type readOnly struct{ reconcile.Store }

func (readOnly) Settle(context.Context, time.Time, protocol.Settlement) error {
	return &idem.StoreError{Op: "Settle", Err: &smithy.GenericAPIError{Code: "AccessDeniedException"}}
}

func TestARefusalOfAWSSaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		good := b.backend.store
		for code, says := range map[string]string{
			"AccessDeniedException":     "idemctl show needs Table.GrantReader",
			"ResourceNotFoundException": "--region",
			"ExpiredTokenException":     "log in again",
		} {
			b.backend.store = refusing{good, code}
			exit, out, errs := b.run("show", r1.ID())
			require.Equal(t, exitFailed, exit)
			require.Empty(t, out)
			require.Contains(t, errs, "it is refused")
			require.Contains(t, errs, says)
		}
		b.backend.store = refusing{good, "AccessDeniedException"}
		_, _, errs := b.run(with(releaseR1, "--yes")...)
		require.Contains(t, errs, "idemctl release needs Table.GrantOperator")
		require.Contains(t, hint(&smithy.GenericAPIError{Code: "AccessDeniedException"}, "check"), "idemctl check needs Table.GrantCheck")
		b.unknown(r1)
		b.Clock.Advance(time.Hour)
		b.backend.store = readOnly{good}
		_, _, errs = b.run(with(releaseR1, "--yes")...)
		require.Contains(t, errs, "AWS does not allow it")
		require.Contains(t, errs, "Table.GrantOperator")
		require.NotContains(t, errs, "may or may not")
		b.backend.store = refusing{good, "InternalServerError"}
		_, _, errs = b.run("show", r1.ID())
		require.NotContains(t, errs, "--profile")
	})
}

// A mistake is told before anything is asked of AWS.
func TestWithoutARegionOrItsProfileTheCommandSaysSo(t *testing.T) {
	for profile, says := range map[string]string{"": "no region is set: use --region", "none": "check --profile"} {
		home := t.TempDir()
		for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
			t.Setenv(name, "")
		}
		t.Setenv("AWS_CONFIG_FILE", home+"/config")
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", home+"/credentials")
		_, err := connect(t.Context(), Globals{Table: "payments", Profile: profile}, &serverClock{local: time.Now})
		var mistake *usageError
		require.ErrorAs(t, err, &mistake)
		require.Contains(t, err.Error(), says)
	}
}
