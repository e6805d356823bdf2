package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/schema"
)

// minRatio is the least share of the raw SDK's throughput that is accepted.
const minRatio = 0.95

var work = idem.Operation{Name: "bench", Repeat: idem.Repeatable}

// bench compares throughput, the two sides taking turns.
func (b *duel) bench(ctx context.Context) error {
	fmt.Printf("throughput on DynamoDB Local against the same SDK calls by hand, %d interleaved rounds\n", rounds)
	fmt.Printf("  %-8s %8s %12s %12s %8s   %s\n", "path", "callers", "by hand", "with idem", "ratio", "95 % interval")
	var errs []error
	for _, callers := range []int{1, 8, 32} {
		for _, path := range []struct {
			name      string
			raw, idem func(ctx context.Context, id string) error
		}{
			{"first", b.rawFirst, b.idemFirst},
			{"replay", b.rawReplay, b.idemReplay},
			{"hot key", b.rawRead, b.idemHot},
		} {
			errs = append(errs, b.compare(ctx, path.name, callers, path.raw, path.idem))
		}
	}
	return errors.Join(append(errs, b.latencies(ctx))...)
}

// latencies prints how long calls take, one after the other, when each call of DynamoDB takes 5 ms more than here.
func (b *duel) latencies(ctx context.Context) error {
	const calls = 500
	fmt.Printf("latency of %d calls with idem, one after the other, with %v added to each call of DynamoDB\n", calls, far)
	fmt.Printf("  %-8s %10s %10s\n", "path", "p50", "p99")
	b.far.Store(true)
	defer b.far.Store(false)
	for _, path := range []struct {
		name string
		call func(ctx context.Context, id string) error
	}{{"first", b.idemFirst}, {"replay", b.idemReplay}, {"hot key", b.idemHot}} {
		var took []float64
		for range calls {
			begun := time.Now()
			if err := path.call(ctx, b.newID()); err != nil {
				return fmt.Errorf("%s: %w", path.name, err)
			}
			took = append(took, float64(time.Since(begun))/float64(time.Millisecond))
		}
		slices.Sort(took)
		fmt.Printf("  %-8s %7.1f ms %7.1f ms\n", path.name, took[calls/2], took[calls*99/100])
	}
	return nil
}

// far is how much farther DynamoDB is for latencies.
const far = 5 * time.Millisecond

// recordedKeys are more than an engine knows as hot.
const recordedKeys = 4096

// duel holds what both sides need: a client, the engine, and the inputs of the SDK calls
// that the engine makes, to be made by hand with other keys.
type duel struct {
	client *dynamodb.Client
	next   atomic.Int64 // operation
	again  atomic.Int64 // replay
	far    atomic.Bool  // DynamoDB takes longer
	engine *idem.Engine
	put    dynamodb.PutItemInput
	finish dynamodb.UpdateItemInput
	body   []byte
}

// recorder keeps the inputs of one operation.
type recorder struct {
	*dynamodb.Client
	b *duel
}

func (r recorder) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	r.b.put = *in
	return r.Client.PutItem(ctx, in, opts...)
}

func (r recorder) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	r.b.finish = *in
	return r.Client.UpdateItem(ctx, in, opts...)
}

func newDuel(ctx context.Context) (*duel, error) {
	endpoint := os.Getenv(schema.EnvEndpoint)
	if endpoint == "" {
		return nil, fmt.Errorf("%s is not set: run `make bench`, which starts DynamoDB Local", schema.EnvEndpoint)
	}
	own, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: endpoint})
	if err != nil {
		return nil, err
	}
	table := "bench" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := dynamostore.CreateTable(ctx, own, table); err != nil {
		return nil, err
	}
	b := &duel{body: make([]byte, 1<<10)}
	own = dynamodb.New(own.Options(), func(o *dynamodb.Options) { o.HTTPClient = distant{o.HTTPClient, &b.far} })
	b.client = own
	for i := range b.body {
		b.body[i] = byte('a' + i*i%26)
	}
	// The first engine only shows its inputs, the second is the one measured.
	for _, client := range []dynamostore.Client{recorder{own, b}, own} {
		// A busy machine's table is slow, and not down.
		store, err := dynamostore.New(client, table, &dynamostore.Options{AttemptTimeout: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		if b.engine, err = idem.New(store,
			&idem.Options{ClaimBudget: 20 * time.Second, FinishBudget: 20 * time.Second}); err != nil {
			return nil, err
		}
		if b.put.Item == nil {
			if err := b.idemFirst(ctx, "recorded"); err != nil {
				return nil, err
			}
		}
	}
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i := range recordedKeys {
		g.Go(func() error { return b.idemFirst(within, recorded(i)) })
	}
	return b, g.Wait()
}

func recorded(i int) string { return "recorded-" + strconv.Itoa(i%recordedKeys) }

// distant is a client of what is farther away while the flag is set.
type distant struct {
	dynamodb.HTTPClient
	far *atomic.Bool
}

func (d distant) Do(r *http.Request) (*http.Response, error) {
	if d.far.Load() {
		time.Sleep(far)
	}
	return d.HTTPClient.Do(r)
}

func (b *duel) call(id string) idem.Call {
	return idem.Call{
		Key: work.Key("acme", id), Fingerprint: fingerprint.Bytes(b.body),
		Run: func(context.Context) idem.Answer { return idem.Answer{Body: b.body} },
	}
}

func (b *duel) idemFirst(ctx context.Context, id string) error {
	out, err := b.engine.Execute(ctx, b.call(id))
	if err == nil && (out.Replayed || out.Queued) {
		return errors.New("not a first execution")
	}
	return err
}

// idemReplay is the first duplicate of a key for some time, idemHot one of many.
func (b *duel) idemReplay(ctx context.Context, _ string) error {
	return b.replay(ctx, recorded(int(b.again.Add(1))))
}

func (b *duel) idemHot(ctx context.Context, _ string) error { return b.replay(ctx, "recorded") }

func (b *duel) replay(ctx context.Context, id string) error {
	out, err := b.engine.Execute(ctx, b.call(id))
	if err == nil && (!out.Replayed || len(out.Body) != len(b.body)) {
		return errors.New("not a replay")
	}
	return err
}

// rawFirst is a conditional put and a conditional update by hand, with items of
// the same size as the engine's.
func (b *duel) rawFirst(ctx context.Context, id string) error {
	pk := &types.AttributeValueMemberS{Value: work.Key("acme", id).ID()}
	put := b.put
	put.Item = maps.Clone(put.Item)
	put.Item[schema.PK] = pk
	if _, err := b.client.PutItem(ctx, &put); err != nil {
		return err
	}
	finish := b.finish
	finish.Key = map[string]types.AttributeValue{schema.PK: pk, schema.SK: finish.Key[schema.SK]}
	_, err := b.client.UpdateItem(ctx, &finish)
	return err
}

func (b *duel) rawReplay(ctx context.Context, _ string) error {
	put := b.put
	put.Item = maps.Clone(put.Item)
	_, err := b.client.PutItem(ctx, &put)
	var failed *types.ConditionalCheckFailedException
	if !errors.As(err, &failed) || len(failed.Item) == 0 {
		return fmt.Errorf("not a replay: %w", err)
	}
	return nil
}

func (b *duel) rawRead(ctx context.Context, _ string) error {
	consistent := true
	out, err := b.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: b.put.TableName, ConsistentRead: &consistent,
		Key: map[string]types.AttributeValue{schema.PK: b.put.Item[schema.PK], schema.SK: b.put.Item[schema.SK]}})
	if err == nil && len(out.Item) == 0 {
		err = errors.New("not a replay")
	}
	return err
}

// compare runs both sides in turns, each round in the other order, and fails if
// the interval of the paired ratios lies wholly below minRatio.
func (b *duel) compare(ctx context.Context, name string, callers int, raw,
	with func(context.Context, string) error) error {
	ops := 300 + 50*callers
	if _, err := b.throughput(ctx, callers, ops, raw); err != nil { // warms the connections
		return err
	}
	var ratios, raws, withs []float64
	for i := range rounds {
		sides := []func(context.Context, string) error{raw, with}
		var got [2]float64
		for j := range sides {
			k := (i + j) % 2
			x, err := b.throughput(ctx, callers, ops, sides[k])
			if err != nil {
				return fmt.Errorf("%s, %d callers: %w", name, callers, err)
			}
			got[k] = x
		}
		raws, withs, ratios = append(raws, got[0]), append(withs, got[1]), append(ratios, got[1]/got[0])
	}
	low, high := interval(ratios)
	fmt.Printf("  %-8s %8d %9.0f /s %9.0f /s %8.3f   %.3f to %.3f\n", name, callers, middle(raws), middle(withs),
		middle(ratios), low, high)
	if high < minRatio {
		return fmt.Errorf("%s, %d callers: between %.3f and %.3f of the raw throughput, at least %.2f is required", name,
			callers, low, high, minRatio)
	}
	return nil
}

// throughput makes ops calls, with an id each, by so many callers. It returns calls
// per second.
func (b *duel) throughput(ctx context.Context, callers, ops int,
	call func(ctx context.Context, id string) error) (float64, error) {
	g, ctx := errgroup.WithContext(ctx)
	var done atomic.Int64
	begun := time.Now()
	for range callers {
		g.Go(func() error {
			for n := done.Add(1); n <= int64(ops) && ctx.Err() == nil; n = done.Add(1) {
				if err := call(ctx, b.newID()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(ops) / time.Since(begun).Seconds(), err
}

func (b *duel) newID() string { return "op-" + strconv.FormatInt(b.next.Add(1), 36) }

func middle(xs []float64) float64 { return slices.Sorted(slices.Values(xs))[len(xs)/2] }

// interval is the 95 % confidence interval of the mean, by Student's t.
func interval(xs []float64) (low, high float64) {
	const student = 2.306 // the 97.5 % quantile for 8 degrees of freedom: 9 rounds
	var mean, sum float64
	for _, x := range xs {
		mean += x / rounds
	}
	for _, x := range xs {
		sum += (x - mean) * (x - mean)
	}
	half := student * math.Sqrt(sum/(rounds-1)/rounds)
	return mean - half, mean + half
}
