package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/duel"
)

// minRatio is the least share of the raw SDK's throughput that is accepted.
const minRatio = 0.95

// bench compares throughput, the two sides taking turns.
func (b *bench) run(ctx context.Context) error {
	fmt.Print("throughput on DynamoDB Local against the same SDK calls by hand, ")
	return errors.Join(duel.Run(ctx,
		duel.Path{Name: "first", ID: duel.NewID, ByHand: b.rawFirst, Idem: b.side.First, Least: minRatio},
		duel.Path{Name: "replay", ID: duel.Recorded, ByHand: b.rawReplay, Idem: b.side.Replay, Least: minRatio},
		duel.Path{Name: "hot key", ID: duel.Hot, ByHand: b.rawRead, Idem: b.side.Replay, Least: minRatio}), b.latencies(ctx))
}

// latencies prints how long calls take, one after the other, when each call of DynamoDB takes 5 ms more than here.
func (b *bench) latencies(ctx context.Context) error {
	const calls = 500
	fmt.Printf("latency of %d calls with idem, one after the other, with %v added to each call of DynamoDB\n", calls, far)
	fmt.Printf("  %-8s %10s %10s\n", "path", "p50", "p99")
	b.far.Store(true)
	defer b.far.Store(false)
	for _, path := range []duel.Path{{Name: "first", ID: duel.NewID, Idem: b.side.First},
		{Name: "replay", ID: duel.Recorded, Idem: b.side.Replay}, {Name: "hot key", ID: duel.Hot, Idem: b.side.Replay}} {
		var took []float64
		for range calls {
			begun := time.Now()
			if err := path.Idem(ctx, path.ID()); err != nil {
				return fmt.Errorf("%s: %w", path.Name, err)
			}
			took = append(took, float64(time.Since(begun))/float64(time.Millisecond))
		}
		slices.Sort(took)
		fmt.Printf("  %-8s %7.1f ms %7.1f ms\n", path.Name, took[calls/2], took[calls*99/100])
	}
	return nil
}

// far is how much farther DynamoDB is for latencies.
const far = 5 * time.Millisecond

// bench holds what both sides need: a client, an engine, and the inputs of the SDK calls
// that the engine makes, to be made by hand with other keys.
type bench struct {
	client *dynamodb.Client
	far    atomic.Bool // DynamoDB takes longer
	side   *duel.Side
	put    dynamodb.PutItemInput
	finish dynamodb.UpdateItemInput
}

// recorder keeps the inputs of one operation.
type recorder struct {
	*dynamodb.Client
	b *bench
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

func newBench(ctx context.Context) (*bench, error) {
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
	b := new(bench)
	own = dynamodb.New(own.Options(), func(o *dynamodb.Options) { o.HTTPClient = distant{o.HTTPClient, &b.far} })
	b.client = own
	store := func(client dynamostore.Client) (*dynamostore.Store, error) {
		// A busy machine's table is slow, and not down.
		return dynamostore.New(client, table, &dynamostore.Options{AttemptTimeout: 10 * time.Second})
	}
	shown, err := store(recorder{own, b})
	if err != nil {
		return nil, err
	}
	engine, err := idem.New(shown, nil)
	if err != nil {
		return nil, err
	}
	if _, err := engine.Execute(ctx, duel.Execution("shown")); err != nil {
		return nil, err
	}
	measured, err := store(own)
	if err != nil {
		return nil, err
	}
	b.side, err = duel.NewSide(ctx, measured)
	return b, err
}

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

// rawFirst is a conditional put and a conditional update by hand, with items of
// the same size as the engine's.
func (b *bench) rawFirst(ctx context.Context, id string) error {
	pk := &types.AttributeValueMemberS{Value: duel.Operation.Key("acme", id).ID()}
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

func (b *bench) rawReplay(ctx context.Context, _ string) error {
	put := b.put
	put.Item = maps.Clone(put.Item)
	_, err := b.client.PutItem(ctx, &put)
	var failed *types.ConditionalCheckFailedException
	if !errors.As(err, &failed) || len(failed.Item) == 0 {
		return fmt.Errorf("not a replay: %w", err)
	}
	return nil
}

func (b *bench) rawRead(ctx context.Context, _ string) error {
	consistent := true
	out, err := b.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: b.put.TableName, ConsistentRead: &consistent,
		Key: map[string]types.AttributeValue{schema.PK: b.put.Item[schema.PK], schema.SK: b.put.Item[schema.SK]}})
	if err == nil && len(out.Item) == 0 {
		err = errors.New("not a replay")
	}
	return err
}
