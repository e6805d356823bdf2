package idemtest_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/reconcile"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// shop is a handler's other systems.
type shop struct{ w *idemtest.World }

func (s shop) bank() *idemtest.Provider  { return s.w.Provider("bank") }
func (s shop) mail() *idemtest.Provider  { return s.w.Provider("mail") }
func (s shop) stock() *idemtest.Provider { return s.w.Provider("stock") }

// permanent is what a handler makes of a rejection.
func permanent(err error) error {
	if errors.Is(err, idemtest.ErrRejected) {
		return idem.Permanent(err)
	}
	return err
}

type handler func(context.Context, shop) (string, error)

// story has an order handled.
func story(op idem.Operation, h handler) func(*idemtest.World) {
	return func(w *idemtest.World) {
		s := shop{w}
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			return idem.Do(ctx, e, op.Key("acme", "order-1"), "a book", func(ctx context.Context, _ string) (string, error) {
				return h(ctx, s)
			})
		})
	}
}

var (
	once   = idem.Operation{Name: "order"}
	repeat = idem.Operation{Name: "order", Repeat: idem.Repeatable}
	atomic = idem.Operation{Name: "order", Repeat: idem.Repeatable, Mode: idem.Atomic}
)

// step has an effect take place in a step, and undoes it where the operation fails.
func step(ctx context.Context, p *idemtest.Provider, effect string, undo bool) error {
	c := &idem.EffectConfig{}
	if undo {
		c.Compensate = func(ctx context.Context) error { return p.Undo(ctx, effect, idem.Token(ctx)) }
	}
	return idem.PermanentStep(idem.StepEffect(ctx, effect, func(ctx context.Context) error {
		return permanent(p.Do(ctx, effect, idem.Token(ctx)))
	}, c))
}

// A handler's mistakes are found.
func TestExploreFindsMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		op      idem.Operation
		handler handler
		want    string
	}{
		"a charge without a token": {repeat, withoutToken, "bank: charge took place more than once"},
		"another token each time": {repeat, func(ctx context.Context, s shop) (string, error) {
			return "charged", permanent(s.bank().Do(ctx, "charge", rand.Text()))
		}, "bank: charge took place more than once"},
		"an effect before a step": {repeat, mailsFirst, "mail: welcome took place more than once"},
		"a swallowed error":       {once, swallows, "the caller got a result, and bank: charge has not taken place"},
		"a compensation forgotten": {repeat, func(ctx context.Context, s shop) (string, error) {
			if err := step(ctx, s.bank(), "charge", false); err != nil {
				return "", err
			}
			return "ordered", step(ctx, s.stock(), "reserve", false)
		}, "the operation failed, and bank: charge stands"},
		"a refund without a token": {repeat, func(ctx context.Context, s shop) (string, error) {
			err := idem.StepEffect(ctx, "charge", func(ctx context.Context) error {
				return permanent(s.bank().Do(ctx, "charge", idem.Token(ctx)))
			}, &idem.EffectConfig{Compensate: func(ctx context.Context) error { return s.bank().Undo(ctx, "charge", "") }})
			if err != nil {
				return "", idem.PermanentStep(err)
			}
			return "ordered", step(ctx, s.stock(), "reserve", false)
		}, "bank: charge was undone more than once"},
		"a rejection that is not marked": {repeat, func(ctx context.Context, s shop) (string, error) {
			return "charged", s.bank().Do(ctx, "charge", idem.Token(ctx))
		}, "no outcome is recorded: each call ends with: error (the other system has rejected the call)"},
		"a rejection after a step that is not marked": {repeat, unmarked, neverEnds},
		"another result in each attempt": {repeat, func(ctx context.Context, s shop) (string, error) {
			return rand.Text(), permanent(s.bank().Do(ctx, "charge", idem.Token(ctx)))
		}, "a caller got a result, and a later one another result"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := idemtest.Findings(t, story(c.op, c.handler))
			require.NoError(t, err)
			require.Contains(t, found, c.want)
		})
	}
}

// What was not sent is not executed, unless something else was. What has no reply may have been executed.
func TestExploreOfNotExecuted(t *testing.T) {
	charge := func(ctx context.Context, s shop, unsent ...error) error {
		err := s.bank().Do(ctx, "charge", "")
		if slices.ContainsFunc(unsent, func(of error) bool { return errors.Is(err, of) }) {
			return idem.NotExecuted(err)
		}
		return permanent(err)
	}
	for name, c := range map[string]struct {
		handler handler
		want    string
	}{
		"not sent": {func(ctx context.Context, s shop) (string, error) {
			return "charged", charge(ctx, s, idemtest.ErrNotSent)
		}, ""},
		"not sent, or no reply": {func(ctx context.Context, s shop) (string, error) {
			return "charged", charge(ctx, s, idemtest.ErrNotSent, idemtest.ErrNoReply)
		}, "bank: charge took place more than once"},
		"not sent after an effect": {func(ctx context.Context, s shop) (string, error) {
			if err := s.w.Optional("mail").Do(ctx, "welcome", ""); err != nil {
				return "", permanent(err)
			}
			return "charged", charge(ctx, s, idemtest.ErrNotSent)
		}, "mail: welcome took place more than once"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := idemtest.Findings(t, story(once, c.handler))
			require.NoError(t, err)
			if c.want == "" {
				require.Empty(t, found)
			} else {
				require.Contains(t, found, c.want)
			}
		})
	}
	require.Regexp(t, `\n1st bank: charge is not sent +bank: charge +error +success +completed\n`,
		idemtest.ReportOf(t, story(once, func(ctx context.Context, s shop) (string, error) {
			return "charged", charge(ctx, s, idemtest.ErrNotSent)
		})).String())
}

// A story has no fault that its mistake does not need: these need one.
func TestExplorePrintsTheFewestFaults(t *testing.T) {
	for name, h := range map[string]handler{"unmarked": unmarked, "a swallowed error": swallows} {
		stories := idemtest.Stories(t, story(repeat, h))
		require.NotEmpty(t, stories, name)
		for found, lines := range stories {
			all := strings.Join(lines, "\n")
			require.Equal(t, 1, strings.Count("\n"+all, "\n>> process "), "%s:\n%s", found, all)
		}
	}
}

// swallows ignores what the bank answers.
func swallows(ctx context.Context, s shop) (string, error) {
	_ = s.bank().Do(ctx, "charge", idem.Token(ctx))
	return "charged", nil
}

// neverEnds is found where a rejection after a step is not marked.
const neverEnds = "no outcome is recorded: each call runs the handler and ends with: error (" +
	"the other system has rejected the call)"

// unmarked charges after a step, and forgets idem.PermanentStep.
func unmarked(ctx context.Context, s shop) (string, error) {
	if err := step(ctx, s.stock(), "seat", true); err != nil {
		return "", err
	}
	return "charged", idem.StepEffect(ctx, "charge", func(ctx context.Context) error {
		return permanent(s.bank().Do(ctx, "charge", idem.Token(ctx)))
	}, nil)
}

// A sweep brings no outcome to what each call ends in the same way.
func TestExploreFindsWhatIsNotMarkedNextToASweep(t *testing.T) {
	found, err := idemtest.Findings(t, func(w *idemtest.World) {
		w.Sweep(reconcile.Operation{Operation: repeat})
		story(repeat, unmarked)(w)
	})
	require.NoError(t, err)
	require.Contains(t, found, neverEnds)
}

// A compensation that is rejected for good is a person's to answer.
func TestExploreLeavesWhatCannotBeUndone(t *testing.T) {
	r := idemtest.Explore(t, story(repeat, func(ctx context.Context, s shop) (string, error) {
		if err := step(ctx, s.stock(), "seat", true); err != nil {
			return "", err
		}
		return "charged", step(ctx, s.bank(), "charge", false)
	}))
	require.Contains(t, r.String(), "runs of")
}

type asks = func(context.Context, reconcile.Question) (reconcile.Answer, error)

// probe asks the bank about a charge.
func probe(bank *idemtest.Provider) asks {
	return func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
		switch found, err := bank.Ask(ctx, "charge", q.Token); {
		case errors.Is(err, idemtest.ErrRejected):
			return reconcile.FailedWith(idem.Failure{Message: "declined"}), nil
		case err != nil:
			return reconcile.Answer{}, err
		case found:
			return reconcile.CompletedWith("charged"), nil
		}
		return reconcile.NotExecuted(), nil // the bank takes a token once
	}
}

// probed has a card charged, and a sweep ask what became of it.
func probed(ask func(*idemtest.Provider) asks) func(*idemtest.World) {
	return func(w *idemtest.World) {
		w.Sweep(reconcile.Operation{Operation: once, Probe: ask(w.Provider("bank"))})
		story(once, withToken)(w)
	}
}

// accepted has work done by a worker, which a message brings or the table's stream. Its errors go through fails.
func accepted(stream bool, work handler, fails func(error) error) func(*idemtest.World) {
	return func(w *idemtest.World) {
		s := shop{w}
		worker := func(ctx context.Context, e *idem.Engine, id string) error {
			_, err := later.Work(ctx, e, repeat, id, func(ctx context.Context, _ string) (string, error) { return work(ctx, s) })
			return fails(err)
		}
		var enqueue later.EnqueueFunc
		if stream {
			w.StreamWorker(repeat, worker)
		} else {
			w.Worker("jobs", func(ctx context.Context, e *idem.Engine, id []byte) error { return worker(ctx, e, string(id)) })
			enqueue = toJobs
		}
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			res, err := later.Accept[string](ctx, e, repeat.Key("acme", "order-1"), "a book", enqueue)
			if err == nil && res.Outcome.RecordState != idem.Completed {
				return nil, errors.New("accepted")
			}
			return res.Value, err
		})
	}
}

// toJobs enqueues accepted work.
func toJobs(ctx context.Context, id string) error {
	dynamostore.TxOf(ctx).Publish("job", outbox.Message{Destination: "jobs", Body: []byte(id)})
	return nil
}

// again has the worker come again unless the operation has an outcome.
func again(err error) error {
	if errors.Is(err, idemtest.ErrRejected) || isRecorded(err) {
		return nil
	}
	return err
}

// withToken charges a card as it should be.
func withToken(ctx context.Context, s shop) (string, error) {
	return "charged", permanent(s.bank().Do(ctx, "charge", idem.Token(ctx)))
}

// withoutToken may charge it twice.
func withoutToken(ctx context.Context, s shop) (string, error) {
	return "charged", permanent(s.bank().Do(ctx, "charge", ""))
}

// mailsFirst has an effect before its step.
func mailsFirst(ctx context.Context, s shop) (string, error) {
	if err := s.mail().Do(ctx, "welcome", ""); err != nil {
		return "", permanent(err)
	}
	return "charged", step(ctx, s.bank(), "charge", false)
}

// Mistakes of workers are found, and a worker without one is left alone, whatever brings it.
func TestExploreBringsWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		work  handler
		fails func(error) error
		want  string
	}{
		"right": {withToken, again, ""},
		"busy at first": {func(ctx context.Context, s shop) (string, error) {
			if attempt, _ := idem.InfoOf(ctx); attempt.Attempt == 1 {
				return "", idem.NotExecuted(errors.New("busy"))
			}
			return withToken(ctx, s)
		}, again, ""},
		"a charge without a token": {withoutToken, again, "bank: charge took place more than once"},
		"an effect before a step":  {mailsFirst, again, "mail: welcome took place more than once"},
		"a rejection after a step that is not marked": {unmarked, func(err error) error {
			if isRecorded(err) {
				return nil
			}
			return err
		}, "no outcome is recorded: each call ends with: error (accepted)"},
		"no delivery acknowledged": {withToken, func(error) error { return errors.New("again") }, ""},
		"every delivery acknowledged": {withToken, func(error) error { return nil },
			"no outcome is recorded: each call ends with: error (accepted)"},
		"what runs already acknowledged": {withToken, func(err error) error {
			if errors.Is(err, idem.ErrInFlight) {
				return nil
			}
			return again(err)
		}, "no outcome is recorded: each call ends with: error (accepted)"},
	} {
		for way, stream := range map[string]bool{"a message": false, "the stream": true} {
			t.Run(name+", "+way, func(t *testing.T) {
				found, err := idemtest.Findings(t, accepted(stream, c.work, c.fails))
				require.NoError(t, err)
				if c.want == "" {
					require.Empty(t, found)
				} else {
					require.Contains(t, found, c.want)
				}
			})
		}
	}
}

// Mistakes of probes are found.
func TestExploreFindsMistakesOfProbes(t *testing.T) {
	for want, s := range map[string]func(*idemtest.World){
		"the operation failed, and bank: charge stands": probed(func(bank *idemtest.Provider) asks {
			return func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
				if found, err := bank.Ask(ctx, "charge", q.Token); found || err != nil {
					return reconcile.CompletedWith("charged"), err
				}
				return reconcile.FailedWith(idem.Failure{Message: "not found"}), nil // its request may be on its way
			}
		}),
		"the caller got a result, and bank: charge has not taken place": probed(func(*idemtest.Provider) asks {
			return func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				return reconcile.CompletedWith("charged"), nil
			}
		}),
	} {
		found, err := idemtest.Findings(t, s)
		require.NoError(t, err)
		require.Contains(t, found, want)
	}
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
		"once":         story(once, withoutToken),
		"with a token": story(repeat, withToken),
		"steps": story(repeat, func(ctx context.Context, s shop) (string, error) {
			if err := step(ctx, s.bank(), "charge", true); err != nil {
				return "", err
			}
			return "ordered", step(ctx, s.stock(), "reserve", false)
		}),
		"a transaction": story(once, func(ctx context.Context, _ shop) (string, error) { return transacted(ctx, "") }),
		"atomic":        story(atomic, func(ctx context.Context, _ shop) (string, error) { return transacted(ctx, "") }),
		"a retry for ever": story(repeat, func(ctx context.Context, s shop) (string, error) {
			for {
				err := s.bank().Do(ctx, "charge", idem.Token(ctx))
				if err == nil || errors.Is(err, idemtest.ErrRejected) {
					return "charged", permanent(err)
				}
				time.Sleep(time.Second)
			}
		}),
		"a log of what is declined": story(repeat, func(ctx context.Context, s shop) (string, error) {
			_ = s.w.Optional("log").Do(ctx, "ordered", idem.Token(ctx))
			err := s.bank().Do(ctx, "charge", idem.Token(ctx))
			if errors.Is(err, idemtest.ErrRejected) {
				_ = s.w.Optional("log").Do(ctx, "declined", idem.Token(ctx))
			}
			return "charged", permanent(err)
		}),
		"a log of what is declined alone": func(w *idemtest.World) {
			log, bank := w.Optional("log"), w.Provider("bank")
			story(repeat, func(ctx context.Context, _ shop) (string, error) {
				err := bank.Do(ctx, "charge", idem.Token(ctx))
				if errors.Is(err, idemtest.ErrRejected) {
					_ = log.Do(ctx, "declined", idem.Token(ctx))
				}
				return "charged", permanent(err)
			})(w)
		},
		"a system that is not used": func(w *idemtest.World) {
			w.Optional("mail")
			story(repeat, withToken)(w)
		},
		"a condition": func(w *idemtest.World) {
			w.Conditions(func(any) (bool, any) { return true, nil })
			conditional := dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, _ string) (string, error) {
				tx.Put(types.Put{TableName: aws.String("orders"), ConditionExpression: aws.String("attribute_not_exists(id)"),
					Item: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "order-1"}}},
					dynamostore.OnConditionFailed(idem.Permanent(errors.New("there is such an order"))))
				return "ordered", nil
			})
			story(once, func(ctx context.Context, _ shop) (string, error) { return conditional(ctx, "") })(w)
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

type (
	httpRequest  = events.APIGatewayV2HTTPRequest
	httpResponse = events.APIGatewayV2HTTPResponse
	poster       = func(context.Context, httpRequest) (httpResponse, error)
)

// behindHTTP has an API called whose handler charges a card.
func behindHTTP(
	t *testing.T, call func(context.Context, *idem.Engine, httpRequest, poster) (any, error),
) func(*idemtest.World) {
	var event httpRequest
	sample, err := samples.Get("apigw-v2-jwt") // POST /payments
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(sample, &event))
	return func(w *idemtest.World) {
		bank := w.Provider("bank")
		post := func(ctx context.Context, _ httpRequest) (httpResponse, error) {
			switch err := bank.Do(ctx, "charge", idem.Token(ctx)); {
			case errors.Is(err, idemtest.ErrRejected):
				return httpResponse{StatusCode: 402, Body: `"no"`}, nil
			case err != nil:
				return httpResponse{}, err
			}
			return httpResponse{StatusCode: 201, Body: `"charged"`}, nil
		}
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			return call(ctx, e, event, post)
		})
	}
}

// Explore says what a story should return in place of a response, and where two responses differ.
func TestExploreOfAResponse(t *testing.T) {
	const advice = " (the result is a response of HTTP: let the story return its body, and an error if its status is no " +
		"success)"
	stories := idemtest.Stories(t, behindHTTP(t, func(
		ctx context.Context, e *idem.Engine, event httpRequest, post poster,
	) (any, error) {
		return idemlambda.HTTPAPI(e, idemhttp.Routes{"POST /payments": once}, idemhttp.Claim("sub"), nil, post)(ctx, event)
	}))
	require.Contains(t, stories, "the caller got a result, and bank: charge has not taken place"+advice)
	lines := stories["a caller got a result, and a later one another result"+advice]
	const alike = `{"statusCode":201,"headers":`
	require.Contains(t, lines, "the caller of delivery 2 gets: "+
		alike+`{"Idempotency-Expires":"Sun, 02 Jan 2000…, and not `+
		alike+`null,"multiValueHeaders":null,"body":"\"… as that of delivery 1`)
}

func isRecorded(err error) bool {
	_, ok := errors.AsType[*idem.RecordedError](err)
	return ok
}

// Explorations at the same time leave the default logger as it was.
func TestExploreLeavesTheLogger(t *testing.T) {
	before := slog.Default()
	t.Run("explorations", func(t *testing.T) {
		for n := range 4 {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				idemtest.Explore(t, story(once, withoutToken))
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
		"does the handler leave a goroutine behind": story(once, func(ctx context.Context, s shop) (string, error) {
			go func() { <-make(chan bool) }()
			return "", s.bank().Do(ctx, "charge", "")
		}),
		"where nothing goes wrong there is no effect": story(once, func(context.Context, shop) (string, error) {
			return "", nil
		}),
		"mail has no effect: its fake must call Provider.Do, unless the story makes it " +
			"with World.Optional": func(w *idemtest.World) {
			w.Provider("mail")
			story(once, func(ctx context.Context, s shop) (string, error) { return "", s.bank().Do(ctx, "charge", "") })(w)
		},
		"where nothing goes wrong delivery 2 has another key of order than delivery 1": rekeyed(1),
		"where nothing goes wrong delivery 3 has another key of order than delivery 1": rekeyed(2), // one of the time
		"the last caller gets an error, and the story must be one that succeeds": story(once,
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
		"bank: charge is called with a context that is not of a handler of this run": story(once,
			func(_ context.Context, s shop) (string, error) {
				return "", s.bank().Do(context.Background(), "charge", "")
			}),
	} {
		_, err := idemtest.Findings(t, s)
		require.ErrorContains(t, err, want)
	}
}
