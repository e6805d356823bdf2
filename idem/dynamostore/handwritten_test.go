package dynamostore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// What idem may cost beside the least that works, written by hand with the same SDK
// client: a conditional put and a conditional update of a table with a partition key
// alone, a replay from the item that the failed put returns. The reply comes from a
// transport in the process, so that what is compared is the client's own work.
const (
	mostBytes = 1300 // of both writes of a first execution
	// mostTime is the most processor time, in times of that by hand. On a quiet machine
	// first executions take 1.1 to 1.2 and replays 1.2. By hand replays take 1.08 with five
	// more attributes in the reply and three in the request, and 1.15 with time-outs for
	// the claim and for its try and a note of how far the SDK came as well. Only the rest
	// is code of the engine and of this package.
	mostTime = 1.3
)

const resultSize = 200

var charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}

// wire answers each operation from the process and keeps the requests' sizes.
type wire struct {
	refuse []byte // answers PutItem, if not nil
	sent   map[string]int
	calls  map[string]int
	bodies []string
	keep   bool
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	w.sent[op] += len(body)
	w.calls[op]++
	if w.keep {
		w.bodies = append(w.bodies, string(body))
	}
	status, reply := http.StatusOK, []byte("{}")
	if op == "PutItem" && w.refuse != nil {
		status, reply = http.StatusBadRequest, w.refuse
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(bytes.NewReader(reply)), ContentLength: int64(len(reply)), Request: r,
	}, nil
}

func (w *wire) reset() { w.sent, w.calls, w.bodies = map[string]int{}, map[string]int{}, nil }

// refusal is a failed condition as DynamoDB sends it, with the item that a first
// execution has put and updated.
func refusal(t testing.TB, put, update string) []byte {
	var p struct{ Item map[string]any }
	var u struct {
		UpdateExpression          string
		ExpressionAttributeValues map[string]any
		ExpressionAttributeNames  map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(put), &p))
	require.NoError(t, json.Unmarshal([]byte(update), &u))
	set, remove, _ := strings.Cut(strings.TrimPrefix(u.UpdateExpression, "SET "), " REMOVE ")
	name := func(n string) string {
		if n = strings.TrimSpace(n); u.ExpressionAttributeNames[n] != "" {
			return u.ExpressionAttributeNames[n]
		}
		return n
	}
	for clause := range strings.SplitSeq(set, ",") {
		to, from, ok := strings.Cut(clause, "=")
		require.True(t, ok, clause)
		value := u.ExpressionAttributeValues[strings.TrimSpace(from)]
		require.NotNil(t, value, clause)
		p.Item[name(to)] = value
	}
	for n := range strings.SplitSeq(remove, ",") {
		delete(p.Item, name(n))
	}
	b, err := json.Marshal(map[string]any{
		"__type":  "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
		"message": "The conditional request failed", "Item": p.Item,
	})
	require.NoError(t, err)
	return b
}

// sides are the same work done by idem and by hand.
type sides struct {
	*wire
	client      *dynamodb.Client
	engine      *idem.Engine
	input, body []byte
	ran         int
	next        int
}

func newSides(t testing.TB) *sides {
	s := &sides{wire: &wire{}, input: bytes.Repeat([]byte("i"), resultSize), body: bytes.Repeat([]byte("r"), resultSize)}
	s.reset()
	var err error
	s.client, err = dynamostore.NewClient(aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	}, &dynamostore.ClientOptions{Transport: s.wire})
	require.NoError(t, err)
	store, err := dynamostore.New(s.client, "table", nil)
	require.NoError(t, err)
	s.engine, err = idem.New(store, nil)
	require.NoError(t, err)
	return s
}

func (s *sides) id() string {
	s.next++
	return "order-" + strconv.Itoa(1_000_000+s.next)
}

func (s *sides) execute(ctx context.Context, id string) (idem.Outcome, error) {
	return s.engine.Execute(ctx, idem.Call{
		Key: charge.Key("acme", id), Fingerprint: fingerprint.Bytes(s.input),
		Run: func(context.Context) idem.Answer {
			s.ran++
			return idem.Answer{Body: s.body}
		},
	})
}

func (s *sides) withIdem(ctx context.Context) error {
	out, err := s.execute(ctx, s.id())
	if err == nil && (out.Replayed || out.Queued || out.RecordState != idem.Completed) {
		err = fmt.Errorf("not a first execution: %+v", out)
	}
	return err
}

func (s *sides) replayWithIdem(ctx context.Context) error {
	out, err := s.execute(ctx, "order-1000000")
	if err == nil && (!out.Replayed || !bytes.Equal(out.Body, s.body)) {
		err = fmt.Errorf("not a replay: %+v", out)
	}
	return err
}

var errNotByHand = errors.New("not what was to be done by hand")

// byHand claims, runs and records, or returns what is recorded.
func (s *sides) byHand(ctx context.Context, id string) (body []byte, replayed bool, err error) {
	owner := rand.Text()
	sum := sha256.Sum256(s.input)
	fp := base64.RawURLEncoding.EncodeToString(sum[:])
	key := sha256.Sum256([]byte(id))
	pk := &types.AttributeValueMemberS{Value: "acme#charge#" + base64.RawURLEncoding.EncodeToString(key[:])}
	now := time.Now()
	number := func(n int64) types.AttributeValue {
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
	}
	_, err = s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: aws.String("table"),
		Item: map[string]types.AttributeValue{
			"id": pk, "phase": &types.AttributeValueMemberS{Value: "in_progress"},
			"holder": &types.AttributeValueMemberS{Value: owner}, "fp": &types.AttributeValueMemberS{Value: fp},
			"lease_until": number(now.Add(30 * time.Second).UnixMilli()), "expires_at": number(now.Add(24 * time.Hour).Unix()),
		},
		ConditionExpression:                 aws.String("attribute_not_exists(id)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		text := func(name string) string {
			v, _ := failed.Item[name].(*types.AttributeValueMemberS)
			if v == nil {
				return ""
			}
			return v.Value
		}
		result, ok := failed.Item["body"].(*types.AttributeValueMemberB)
		if !ok || text("phase") != "completed" || text("fp") != fp {
			return nil, true, errNotByHand
		}
		return result.Value, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	s.ran++
	body = s.body
	_, err = s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: aws.String("table"), Key: map[string]types.AttributeValue{"id": pk},
		UpdateExpression:    aws.String("SET phase=:to,body=:body,expires_at=:exp"),
		ConditionExpression: aws.String("holder=:holder AND phase=:from"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":to": &types.AttributeValueMemberS{Value: "completed"}, ":from": &types.AttributeValueMemberS{Value: "in_progress"},
			":holder": &types.AttributeValueMemberS{Value: owner}, ":body": &types.AttributeValueMemberB{Value: body},
			":exp": number(time.Now().Add(24 * time.Hour).Unix()),
		},
	})
	return body, false, err
}

func (s *sides) firstByHand(ctx context.Context) error {
	_, replayed, err := s.byHand(ctx, s.id())
	if err == nil && replayed {
		err = errNotByHand
	}
	return err
}

func (s *sides) replayByHand(ctx context.Context) error {
	body, replayed, err := s.byHand(ctx, "order-1000000")
	if err == nil && (!replayed || !bytes.Equal(body, s.body)) {
		err = errNotByHand
	}
	return err
}

// playFirst makes one first execution and returns its two requests.
func (s *sides) playFirst(t testing.TB, first func(context.Context) error) (put, update string) {
	s.reset()
	s.refuse, s.keep, s.ran = nil, true, 0
	require.NoError(t, first(t.Context()))
	require.Equal(t, map[string]int{"PutItem": 1, "UpdateItem": 1}, s.calls)
	require.Equal(t, 1, s.ran, "the handler runs once")
	s.keep = false
	return s.bodies[0], s.bodies[1]
}

func TestAFirstExecutionSendsLittle(t *testing.T) {
	s := newSides(t)
	put, update := s.playFirst(t, s.firstByHand)
	t.Logf("by hand: %d + %d bytes", len(put), len(update))
	put, update = s.playFirst(t, s.withIdem)
	t.Logf("with idem: %d + %d bytes\n%s\n%s", len(put), len(update), put, update)
	require.LessOrEqual(t, len(put)+len(update), mostBytes)
	require.Contains(t, update, base64.StdEncoding.EncodeToString(s.body))
}

// BenchmarkAgainstHandWritten compares processor time and allocations, the two sides
// taking turns in short rounds. The median of the ratios of neighbours counts: what else
// the machine does disturbs both alike.
func BenchmarkAgainstHandWritten(b *testing.B) {
	for _, tc := range []struct {
		name      string
		hand, our func(*sides, context.Context) error
		replay    bool
	}{
		{"first", (*sides).firstByHand, (*sides).withIdem, false},
		{"replay", (*sides).replayByHand, (*sides).replayWithIdem, true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			s := newSides(b)
			ctx := b.Context()
			do := []func(*sides, context.Context) error{tc.hand, tc.our}
			var refuse [2][]byte
			if tc.replay {
				for i, first := range []func(context.Context) error{s.firstByHand, s.withIdem} {
					put, update := s.playFirst(b, first)
					refuse[i] = refusal(b, put, update)
				}
			}
			const ops, rounds = 1000, 12 // several collections of garbage a round
			var times, allocs [2]float64
			var ratios []float64
			for b.Loop() {
				var spent [2]float64
				for round := range 2 * rounds {
					i := (round + round/2) % 2 // by hand first, then the other way round
					s.reset()
					s.refuse, s.ran = refuse[i], 0
					var before, after runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&before)
					begun := processorTime()
					for range ops {
						if err := do[i](s, ctx); err != nil {
							b.Fatal(err)
						}
					}
					spent[i] = float64(processorTime()-begun) / ops
					runtime.ReadMemStats(&after)
					allocs[i] = float64(after.Mallocs-before.Mallocs) / ops
					want := map[string]int{"PutItem": ops}
					if !tc.replay {
						want["UpdateItem"] = ops
						require.Equal(b, ops, s.ran)
					}
					require.Equal(b, want, s.calls)
					if round%2 == 1 {
						ratios = append(ratios, spent[1]/spent[0])
						times[0], times[1] = times[0]+spent[0], times[1]+spent[1]
					}
				}
			}
			slices.Sort(ratios)
			ratio := ratios[len(ratios)/2]
			n := float64(len(ratios))
			times[0], times[1] = times[0]/n, times[1]/n
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(times[0]/1e3, "hand-us")
			b.ReportMetric(times[1]/1e3, "idem-us")
			b.ReportMetric(allocs[0], "hand-allocs")
			b.ReportMetric(allocs[1], "idem-allocs")
			b.ReportMetric(ratio, "ratio")
			b.Logf("by hand %.1f us, %.0f allocations; with idem %.1f us, %.0f allocations; ratio %.3f", times[0]/1e3, allocs[0], times[1]/1e3, allocs[1], ratio)
			if ratio > mostTime {
				b.Errorf("%.3f times the processor time of the calls by hand; at most %.2f is accepted", ratio, mostTime)
			}
		})
	}
}

// processorTime is what the process has used of the processors, in nanoseconds.
func processorTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
