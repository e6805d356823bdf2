package idemtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// A compensation that is rejected for good is a person's to answer.
func TestExploreLeavesWhatCannotBeUndone(t *testing.T) {
	r := idemtest.Explore(t, scenario(repeat, func(ctx context.Context, s shop) (string, error) {
		if err := step(ctx, s.stock(), "seat", true); err != nil {
			return "", err
		}
		return "charged", step(ctx, s.bank(), "charge", false)
	}))
	require.Contains(t, r.String(), "runs of")
}

// A probe answers each question that a handler leaves.
func TestExploreAsksProbes(t *testing.T) {
	r := idemtest.Explore(t, probed(probe))
	require.NotContains(t, r.String(), "unknown  unknown")
	require.Regexp(t, `charge gets no reply +bank: charge +error +success +completed`, r.String())
	require.Regexp(t, `charge does not arrive +bank: charge +error +success +completed`, r.String())
}

// What is right is left alone.
func TestExploreFindsNothing(t *testing.T) {
	transacted := dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, _ string) (string, error) {
		tx.Put(types.Put{TableName: aws.String("orders"), Item: map[string]types.AttributeValue{
			"id": &types.AttributeValueMemberS{Value: "order-1"}}}, nil)
		tx.Publish("ordered", outbox.Message{Destination: "mail", Body: []byte("order-1")})
		return "ordered", nil
	})
	for name, s := range map[string]func(*idemtest.World){
		"once":         scenario(once, withoutToken),
		"with a token": scenario(repeat, withToken),
		"steps": scenario(repeat, func(ctx context.Context, s shop) (string, error) {
			if err := step(ctx, s.bank(), "charge", true); err != nil {
				return "", err
			}
			return "ordered", step(ctx, s.stock(), "reserve", false)
		}),
		"a transaction": scenario(once, func(ctx context.Context, _ shop) (string, error) { return transacted(ctx, "") }),
		"atomic":        scenario(atomic, func(ctx context.Context, _ shop) (string, error) { return transacted(ctx, "") }),
		"a retry for ever": scenario(repeat, func(ctx context.Context, s shop) (string, error) {
			for {
				err := s.bank().Do(ctx, "charge", idem.Token(ctx))
				if err == nil || errors.Is(err, idemtest.ErrRejected) {
					return "charged", permanent(err)
				}
				time.Sleep(time.Second)
			}
		}),
		"a log of what is declined": scenario(repeat, func(ctx context.Context, s shop) (string, error) {
			_ = s.w.Optional("log").Do(ctx, "ordered", idem.Token(ctx))
			err := s.bank().Do(ctx, "charge", idem.Token(ctx))
			if errors.Is(err, idemtest.ErrRejected) {
				_ = s.w.Optional("log").Do(ctx, "declined", idem.Token(ctx))
			}
			return "charged", permanent(err)
		}),
		"a log of what is declined alone": func(w *idemtest.World) {
			log, bank := w.Optional("log"), w.Provider("bank")
			scenario(repeat, func(ctx context.Context, _ shop) (string, error) {
				err := bank.Do(ctx, "charge", idem.Token(ctx))
				if errors.Is(err, idemtest.ErrRejected) {
					_ = log.Do(ctx, "declined", idem.Token(ctx))
				}
				return "charged", permanent(err)
			})(w)
		},
		"a system that is not used": func(w *idemtest.World) {
			w.Optional("mail")
			scenario(repeat, withToken)(w)
		},
		"a condition": func(w *idemtest.World) {
			w.Conditions(func(any) (bool, any) { return true, nil })
			conditional := dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, _ string) (string, error) {
				tx.Put(types.Put{TableName: aws.String("orders"), ConditionExpression: aws.String("attribute_not_exists(id)"),
					Item: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "order-1"}}},
					dynamostore.OnConditionFailed(idem.Permanent(errors.New("there is such an order"))))
				return "ordered", nil
			})
			scenario(once, func(ctx context.Context, _ shop) (string, error) { return conditional(ctx, "") })(w)
		},
		"two in a batch": func(w *idemtest.World) {
			bank := w.Provider("bank")
			w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
				var all error
				for _, id := range []string{"order-1", "order-2"} {
					_, err := idem.Do(ctx, e, repeat.Key("acme", id), id, func(ctx context.Context, _ string) (bool, error) {
						return true, permanent(bank.Do(ctx, "charge "+id, idem.Token(ctx)))
					})
					if !errors.Is(err, idemtest.ErrRejected) && !isRecorded(err) {
						all = errors.Join(all, err)
					}
				}
				return nil, all
			})
		},
		"HTTP": behindHTTP(t, func(ctx context.Context, e *idem.Engine, event httpRequest, post poster) (any, error) {
			handler := idemlambda.HTTPAPI(e, idemhttp.Routes{"POST /payments": once}, idemhttp.Claim("sub"), nil, post)
			resp, err := handler(ctx, event)
			if err == nil && resp.StatusCode >= 300 {
				err = errors.New(resp.Body)
			}
			return resp.Body, err
		}),
		"SQS": func(w *idemtest.World) {
			bank := w.Provider("bank")
			ship := func(ctx context.Context, _ string) error { return permanent(bank.Do(ctx, "charge", idem.Token(ctx))) }
			event := events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m-1", Body: `"order-1"`,
				EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:eu-central-1:1:orders"}}}
			w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
				handler := idemlambda.SQS(e, repeat, idemlambda.SQSMessageID(idem.SingleTenant), nil, ship)
				resp, err := handler(ctx, event)
				if err == nil && len(resp.BatchItemFailures) > 0 {
					err = errors.New("comes again")
				}
				return nil, err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := idemtest.Findings(t, s)
			require.NoError(t, err)
			require.Empty(t, found)
		})
	}
}

// Explorations at the same time leave the default logger as it was.
func TestExploreLeavesTheLogger(t *testing.T) {
	before := slog.Default()
	t.Run("explorations", func(t *testing.T) {
		for n := range 4 {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				idemtest.Explore(t, scenario(once, withoutToken))
			})
		}
	})
	require.Same(t, before, slog.Default())
}

// rekeyed has the same key in so many deliveries, and then another one in each.
func rekeyed(same int) func(*idemtest.World) {
	return func(w *idemtest.World) {
		bank, n := w.Provider("bank"), 0
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			n++
			key := once.Key("acme", fmt.Sprintf("order-%d", max(n, same)))
			return idem.Do(ctx, e, key, "a book", func(ctx context.Context, _ string) (bool, error) {
				return true, permanent(bank.Do(ctx, "charge", idem.Token(ctx)))
			})
		})
	}
}

func TestExploreRefuses(t *testing.T) {
	for want, s := range map[string]func(*idemtest.World){
		"World.Deliver 0 times": func(*idemtest.World) {},
		"does the handler leave a goroutine behind": scenario(once, func(ctx context.Context, s shop) (string, error) {
			go func() { <-make(chan bool) }()
			return "", s.bank().Do(ctx, "charge", "")
		}),
		"where nothing goes wrong there is no effect": scenario(once, func(context.Context, shop) (string, error) {
			return "", nil
		}),
		"mail has no effect: its fake must call Provider.Do, unless the scenario makes it " +
			"with World.Optional": func(w *idemtest.World) {
			w.Provider("mail")
			scenario(once, func(ctx context.Context, s shop) (string, error) { return "", s.bank().Do(ctx, "charge", "") })(w)
		},
		"where nothing goes wrong delivery 2 has another key of order than delivery 1": rekeyed(1),
		"where nothing goes wrong delivery 3 has another key of order than delivery 1": rekeyed(2), // one of the time
		"the last caller gets an error, and the scenario must be one that succeeds": scenario(once,
			func(context.Context, shop) (string, error) { return "", errors.New("no") }),
		`accepted; no World.Worker is there for the message to "jobs"; the World.Worker of "job" gets no message; ` +
			`the World.StreamWorker of "charge" gets no change`: func(w *idemtest.World) {
			w.Worker("job", func(context.Context, *idem.Engine, []byte) error { return nil })
			w.StreamWorker(idem.Operation{Name: "charge"}, func(context.Context, *idem.Engine, string) error { return nil })
			w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
				_, err := later.Accept[string](ctx, e, repeat.Key("acme", "order-1"), "a book", toJobs)
				return nil, errors.Join(err, errors.New("accepted"))
			})
		},
		"bank: charge is called with a context that is not of a handler of this run": scenario(once,
			func(_ context.Context, s shop) (string, error) {
				return "", s.bank().Do(context.Background(), "charge", "")
			}),
	} {
		_, err := idemtest.Findings(t, s)
		require.ErrorContains(t, err, want)
	}
}
