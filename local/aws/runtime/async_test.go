package runtime_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestAsyncRetriesUnderTheSameRequestID(t *testing.T) {
	pool := start(t, runtime.Function{}, nil)
	for event, kind := range map[string]string{
		`{"do":"error"}`:           "declined",
		`{"do":"panic"}`:           "errorString",
		`{"do":"exit","size":1}`:   runtime.TypeExit,
		`{"do":"stream","size":1}`: "errorString",
	} {
		results, err := pool.InvokeAsync(context.Background(), []byte(event),
			&runtime.AsyncOptions{Delays: []time.Duration{0, 0}})
		require.NoError(t, err)
		require.Len(t, results, 3, "two retries")
		for _, result := range results {
			require.Equal(t, kind, result.Error.Type)
			require.Equal(t, results[0].RequestID, result.RequestID)
		}
	}
}

func TestAsyncEndsWithSuccess(t *testing.T) {
	pool := start(t, runtime.Function{}, nil)
	results, err := pool.InvokeAsync(context.Background(), []byte(`{"do":"context"}`),
		&runtime.AsyncOptions{RequestID: "r-1", TenantID: "blue"})
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.Nil(t, results[0].Error)
	require.Contains(t, string(results[0].Payload), `"r-1"`)
	require.Contains(t, string(results[0].Payload), `"blue"`)

	none, err := pool.InvokeAsync(context.Background(), []byte(`{"do":"error"}`),
		&runtime.AsyncOptions{Delays: []time.Duration{}})
	require.NoError(t, err)
	require.Len(t, none, 1)
}

func TestAsyncBadInput(t *testing.T) {
	pool := start(t, runtime.Function{}, nil)
	_, err := pool.InvokeAsync(context.Background(), []byte(`"`+strings.Repeat("x", runtime.MaxAsyncEventBytes)+`"`), nil)
	require.ErrorContains(t, err, "asynchronously")
	_, err = pool.InvokeAsync(context.Background(), []byte(`{`), nil)
	require.ErrorContains(t, err, "not JSON")
}

// The waits between the attempts are Lambda's: a minute, then two. The function
// cannot be started here, which fails without a process.
func TestAsyncDelays(t *testing.T) {
	path := t.TempDir() + "/plain"
	touch(t, path)
	synctest.Test(t, func(t *testing.T) {
		pool, err := runtime.Start(t.Context(), runtime.Function{Path: path}, nil)
		require.NoError(t, err)
		begun := time.Now()
		results, err := pool.InvokeAsync(t.Context(), []byte(`{}`), nil)
		require.NoError(t, err)
		require.Len(t, results, 3)
		require.Equal(t, 3*time.Minute, time.Since(begun))

		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		results, err = pool.InvokeAsync(ctx, []byte(`{}`), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, results, 1)

		go func() {
			<-time.After(90 * time.Second)
			pool.Close()
		}()
		results, err = pool.InvokeAsync(t.Context(), []byte(`{}`), nil)
		require.ErrorIs(t, err, runtime.ErrClosed)
		require.Len(t, results, 2)
	})
}
