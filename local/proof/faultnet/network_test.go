package faultnet_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
)

// service counts what arrives, and answers with it.
type service struct {
	url  string
	mu   sync.Mutex
	got  []string
	host string
}

func newService(t *testing.T) *service {
	s := new(service)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got, s.host = append(s.got, string(body)), r.Host
		w.Header().Set("X-Service", "here")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(append([]byte("got "), body...))
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *service) arrived() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// ways are the two ways over a network: in the process, and by URL.
func ways(t *testing.T, test func(t *testing.T, s *service, n *faultnet.Network,
	send func(ctx context.Context, op, body string) (string, error))) {
	for _, way := range []string{"in the process", "by URL"} {
		t.Run(way, func(t *testing.T) {
			s, n := newService(t), faultnet.New()
			client, url := &http.Client{Transport: n}, s.url
			if way == "by URL" {
				client, url = &http.Client{Transport: caller.Transport{RoundTripper: http.DefaultTransport}}, n.Serve(t, s.url)
			}
			test(t, s, n, func(ctx context.Context, op, body string) (string, error) {
				r, err := http.NewRequestWithContext(ctx, "POST", url+"/path", strings.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
				res, err := client.Do(r)
				if err != nil {
					return "", err
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				return strconv.Itoa(res.StatusCode) + " " + res.Header.Get("X-Service") + " " + string(text), nil
			})
		})
	}
}

func TestCallsPassUnlessTheRuleSaysOtherwise(t *testing.T) {
	ways(t, func(t *testing.T, s *service, n *faultnet.Network,
		send func(ctx context.Context, op, body string) (string, error)) {
		got, err := send(t.Context(), "GetItem", "one")
		require.NoError(t, err)
		require.Equal(t, "202 here got one", got)
		var passed atomic.Int32
		n.Set(func(c *faultnet.Call) faultnet.Fault {
			c.OnPass = func(r *faultnet.Reply) {
				require.Equal(t, http.StatusAccepted, r.Status)
				passed.Add(1)
			}
			if c.Operation == "PutItem" && c.Number == 3 && string(c.Body) == "three" {
				return faultnet.LoseRequest
			}
			return nil
		})
		for _, body := range []string{"two", "three", "four"} {
			got, err := send(t.Context(), "PutItem", body)
			if body == "three" {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, "202 here got "+body, got)
		}
		require.Equal(t, []string{"one", "two", "four"}, s.arrived())
		require.EqualValues(t, 2, passed.Load())
		n.Calm()
		_, err = send(t.Context(), "PutItem", "three")
		require.NoError(t, err)
		require.EqualValues(t, 2, passed.Load())
	})
}

func TestWhatArrivesUnderEachFault(t *testing.T) {
	for name, c := range map[string]struct {
		fault           faultnet.Fault
		answered        bool
		arrived, killed int
	}{
		"lost request":          {fault: faultnet.LoseRequest},
		"lost reply":            {fault: faultnet.LoseReply, arrived: 1},
		"silence":               {fault: faultnet.Hang},
		"delay":                 {fault: faultnet.Delay(time.Millisecond), answered: true, arrived: 1},
		"delay beyond waiting":  {fault: faultnet.Delay(400 * time.Millisecond), arrived: 1},
		"lost and arrives late": {fault: faultnet.LoseAndArrive(time.Millisecond), arrived: 1},
		"refused":               {fault: faultnet.Throttle, answered: true},
		"killed before":         {fault: faultnet.KillBefore(kill), killed: 1},
		"killed after":          {fault: faultnet.KillAfter(kill), arrived: 1, killed: 1},
		"killed with":           {fault: faultnet.KillWith(kill), answered: true, arrived: 1, killed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, s *service, n *faultnet.Network,
				send func(ctx context.Context, op, body string) (string, error)) {
				killed.Store(0)
				n.Set(func(*faultnet.Call) faultnet.Fault { return c.fault })
				limit := time.Minute
				if !c.answered {
					limit = 200 * time.Millisecond // some faults end with the client's patience
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, err := send(ctx, "PutItem", "body")
				require.Equal(t, c.answered, err == nil, "%v", err)
				n.Calm()
				require.Len(t, s.arrived(), c.arrived)
				require.EqualValues(t, c.killed, killed.Load())
			})
		})
	}
}

var killed atomic.Int32

func kill(*faultnet.Call) { killed.Add(1) }

func TestRandomThrowsEveryFaultAndKnowsWhomItKilled(t *testing.T) {
	names := []string{faultnet.KilledBefore, faultnet.KilledWith, faultnet.ReplyLost}
	random := faultnet.NewRandom(1, kill, func(op string) (float64, []string) {
		require.Equal(t, "PutItem", op)
		return 50, names
	})
	for pid := range 100 {
		random.Rule(&faultnet.Call{Operation: "PutItem", PID: pid})
	}
	count, total := random.Count(), 0
	for _, name := range names {
		require.InDelta(t, count[names[0]], count[name], 1)
		total += count[name]
	}
	require.InDelta(t, 50, total, 25)
	killed := 0
	for pid := range 100 {
		if random.Killed(pid) {
			killed++
		}
	}
	require.Equal(t, count[faultnet.KilledBefore]+count[faultnet.KilledWith], killed)
}

// The SDK takes the refusals for DynamoDB's.
func TestRefusalsAreDynamoDBs(t *testing.T) {
	n := faultnet.New()
	client, err := dynamostore.NewClient(aws.Config{},
		&dynamostore.ClientOptions{Endpoint: "http://localhost:1", Transport: n})
	require.NoError(t, err)
	put := func() error {
		_, err := client.PutItem(t.Context(),
			&dynamodb.PutItemInput{TableName: aws.String("t"), Item: map[string]types.AttributeValue{}})
		return err
	}
	for code, fault := range map[string]faultnet.Fault{
		"ThrottlingException": faultnet.Throttle, "InternalServerError": faultnet.ServerError,
		"AccessDeniedException": faultnet.AccessDenied, "TransactionConflictException": faultnet.Conflict,
	} {
		n.Set(func(*faultnet.Call) faultnet.Fault { return fault })
		var api smithy.APIError
		require.ErrorAs(t, put(), &api)
		require.Equal(t, code, api.ErrorCode())
	}
	n.Set(func(*faultnet.Call) faultnet.Fault { return faultnet.Conflict })
	item := types.TransactWriteItem{Put: &types.Put{TableName: aws.String("t"), Item: map[string]types.AttributeValue{}}}
	_, err = client.TransactWriteItems(t.Context(),
		&dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{item, item, item}})
	var cancelled *types.TransactionCanceledException
	require.True(t, errors.As(err, &cancelled), "%v", err)
	require.Len(t, cancelled.CancellationReasons, 3)
	hit := 0
	for _, reason := range cancelled.CancellationReasons {
		if *reason.Code == "TransactionConflict" {
			hit++
		}
	}
	require.Positive(t, hit)
}
