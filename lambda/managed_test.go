package idemlambda

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// On Lambda Managed Instances a time-out ends the answer, not the handler. One that
// runs on keeps its claim: its duplicate does not run beside it, and its late outcome
// counts.
func TestManagedInstancesKeepTheClaim(t *testing.T) {
	const whole = 10 * time.Second
	environments := map[string]map[string]string{
		"by its type":        {"AWS_LAMBDA_INITIALIZATION_TYPE": "lambda-managed-instances", "AWS_LAMBDA_MAX_CONCURRENCY": "1"},
		"by its concurrency": {"AWS_LAMBDA_MAX_CONCURRENCY": "8"},
	}
	for name, env := range environments {
		for _, repeat := range []idem.Repeat{idem.Repeatable, idem.NotRepeatable} {
			op := idem.Operation{Name: "settle", Repeat: repeat}
			for entry, open := range map[string]func(*idem.Engine, func(context.Context) error) func(context.Context) error{
				"Wrap": func(e *idem.Engine, f func(context.Context) error) func(context.Context) error {
					h := Wrap(e, op, Pointer(idem.SingleTenant, "/id"), func(ctx context.Context, _ json.RawMessage) (int, error) { return 1, f(ctx) })
					return func(ctx context.Context) error {
						_, err := h(ctx, []byte(`{"id":"1"}`))
						return err
					}
				},
				"SNS": func(e *idem.Engine, f func(context.Context) error) func(context.Context) error {
					h := SNS(e, op, nil, &Options[events.SNSEventRecord]{Logger: quiet},
						func(ctx context.Context, _ string) error { return f(ctx) })
					return func(ctx context.Context) error {
						return h(ctx, events.SNSEvent{Records: []events.SNSEventRecord{{SNS: events.SNSEntity{TopicArn: "t", MessageID: "1"}}}})
					}
				},
				"the engine alone": func(e *idem.Engine, f func(context.Context) error) func(context.Context) error {
					return func(ctx context.Context) error {
						_, err := idem.Do(ctx, e, op.Key(idem.SingleTenant, "1"), 1, func(ctx context.Context, _ int) (int, error) { return 1, f(ctx) })
						return err
					}
				},
			} {
				t.Run(name+"/"+repeat.String()+"/"+entry, func(t *testing.T) {
					t.Setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1")
					for k, v := range env {
						t.Setenv(k, v)
					}
					synctest.Test(t, func(t *testing.T) {
						store := memory()
						late, err := idem.New(store, nil)
						require.NoError(t, err)
						runs := 0
						h := func(e *idem.Engine) func(context.Context) error {
							return open(e, func(ctx context.Context) error {
								runs++
								begun := time.Now()
								end, ok := ctx.Deadline()
								require.True(t, ok)
								require.LessOrEqual(t, end.Sub(begun), whole, "the deadline bounds the handler all the same")
								time.Sleep(3 * whole) // does not look at its context
								require.Error(t, ctx.Err())
								return nil
							})
						}
						over := make(chan error)
						go func() {
							ctx, cancel := context.WithTimeout(t.Context(), whole)
							defer cancel()
							over <- h(late)(ctx)
						}()
						time.Sleep(whole + 2*idem.DefaultMargin)
						other, err := idem.New(store, nil)
						require.NoError(t, err)
						ctx, cancel := context.WithTimeout(t.Context(), whole)
						defer cancel()
						require.ErrorIs(t, h(other)(ctx), idem.ErrInFlight)
						require.Equal(t, 1, runs)
						require.NoError(t, <-over)
						again, cancel := context.WithTimeout(t.Context(), whole)
						defer cancel()
						require.NoError(t, h(other)(again), "the late outcome is recorded")
						require.Equal(t, 1, runs)
					})
				})
			}
		}
	}
}

// Elsewhere the lease ends with the process.
func TestOnDemandLeaseEndsAtTheKill(t *testing.T) {
	t.Setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1")
	t.Setenv("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand")
	t.Setenv("AWS_LAMBDA_MAX_CONCURRENCY", "")
	synctest.Test(t, func(t *testing.T) {
		engine, err := idem.New(memory(), nil)
		require.NoError(t, err)
		h := Wrap(engine, transfer, Pointer(idem.SingleTenant, "/id"), func(ctx context.Context, _ json.RawMessage) (time.Time, error) {
			info, ok := idem.InfoOf(ctx)
			require.True(t, ok)
			return info.LeaseUntil, nil
		})
		kill := time.Now().Add(10 * time.Second)
		ctx, cancel := context.WithDeadline(t.Context(), kill)
		defer cancel()
		got, err := h(ctx, []byte(`{"id":"1"}`))
		require.NoError(t, err)
		var until time.Time
		require.NoError(t, json.Unmarshal(got, &until))
		require.WithinDuration(t, kill, until, time.Millisecond)
	})
}
