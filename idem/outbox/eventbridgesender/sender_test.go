package eventbridgesender

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

type request struct {
	Entries []struct{ Source, DetailType, Detail, EventBusName string }
}

// answering is a sender whose service gives one answer, and the requests it got.
func answering(t *testing.T, status int, kind, body string) (*Sender, *[]request) {
	var got []request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in request
		if err := json.NewDecoder(r.Body).Decode(&in); err == nil {
			got = append(got, in)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.Header().Set("X-Amzn-Errortype", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	s, err := New(client(srv.URL), "payments", "com.example.orders")
	require.NoError(t, err)
	return s, &got
}

func client(endpoint string) *eventbridge.Client {
	return eventbridge.New(eventbridge.Options{
		BaseEndpoint: &endpoint, Region: "eu-central-1", Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
		}),
	})
}

func message(n int, body string) outbox.Message {
	return outbox.Message{
		ID: outbox.MessageID("r", time.UnixMilli(0), strconv.Itoa(n)), Destination: "orders", Type: "order.placed",
		ContentType: "application/json",
		Body:        []byte(body), Attributes: map[string]string{"region": "eu"},
	}
}

func small(count int) (messages []outbox.Message) {
	for n := range count {
		messages = append(messages, message(n, `1`))
	}
	return messages
}

func TestRequest(t *testing.T) {
	s, got := answering(t, 200, "", `{"FailedEntryCount":0,"Entries":[{"EventId":"1"},{"EventId":"2"},{"EventId":"3"}]}`)
	plain := message(2, "")
	plain.Type, plain.ContentType, plain.Attributes, plain.Body = "", "", nil, []byte{0, 1}
	for _, err := range s.Send(t.Context(),
		[]outbox.Message{message(0, `{"n": 9007199254740993, "h": "<&>"}`), message(1, `[1]`), plain}) {
		require.NoError(t, err)
	}
	require.Len(t, *got, 1)
	entries := (*got)[0].Entries
	require.Equal(t, `{"id":"`+outbox.MessageID("r", time.UnixMilli(0), "0")+`","contentType":"application/json",`+
		`"attributes":{"region":"eu"},"data":{"n":9007199254740993,"h":"<&>"}}`, entries[0].Detail)
	require.JSONEq(t, `{"id":"`+outbox.MessageID("r", time.UnixMilli(0), "2")+`","dataBase64":"AAE="}`, entries[2].Detail)
	require.Equal(t, "order.placed", entries[0].DetailType)
	require.Equal(t, "orders", entries[2].DetailType)
	for _, e := range entries {
		require.Equal(t, "com.example.orders", e.Source)
		require.Equal(t, "payments", e.EventBusName)
	}
}

// Ten at a time, and no more than fit.
func TestBatches(t *testing.T) {
	s, got := answering(t, 200, "", `{"Entries":[`+strings.Repeat(`{"EventId":"1"},`, 9)+`{"EventId":"1"}]}`)
	messages := small(12)
	for n := range 3 {
		messages = append(messages, message(n, `"`+strings.Repeat("x", 100<<10)+`"`))
	}
	s.Send(t.Context(), messages)
	var sizes []int
	for _, r := range *got {
		sizes = append(sizes, len(r.Entries))
	}
	require.Equal(t, []int{10, 4, 1}, sizes)
}

func TestFailures(t *testing.T) {
	s, _ := answering(t, 200, "", `{"FailedEntryCount":3,"Entries":[
		{"ErrorCode":"MalformedDetail","ErrorMessage":"no"},{"EventId":"1"},
		{"ErrorCode":"ThrottlingException","ErrorMessage":"later"},{"ErrorCode":"NotAuthorizedForSourceException"},{}]}`)
	messages := small(6)
	errs := s.Send(t.Context(), messages)
	require.ErrorIs(t, errs[0], outbox.ErrRejected)
	require.ErrorContains(t, errs[0], "MalformedDetail: no")
	require.NoError(t, errs[1])
	for i, says := range []string{"ThrottlingException: later", "NotAuthorized", "says nothing", "says nothing"} {
		require.ErrorContains(t, errs[2+i], says)
		require.NotErrorIs(t, errs[2+i], outbox.ErrRejected)
	}

	for _, c := range []struct {
		kind, message string
		status        int
		rejected      bool
		requests      int
	}{
		{"ValidationException", "1 validation error: detail", 400, true, 3},
		{"ValidationException", "EventBusName must match", 400, false, 1},
		{"AccessDeniedException", "no", 400, false, 1},
		{"InternalException", "later", 500, false, 1},
	} {
		s, got := answering(t, c.status, c.kind, `{"__type":"`+c.kind+`","message":"`+c.message+`"}`)
		errs := s.Send(t.Context(), messages[:2])
		require.Len(t, *got, c.requests, c.message)
		for _, err := range errs {
			require.ErrorContains(t, err, "eventbridge: ")
			require.Equal(t, c.rejected, errors.Is(err, outbox.ErrRejected), c.message)
		}
	}
}

func TestBadSenders(t *testing.T) {
	c := client("http://127.0.0.1:1")
	for says, args := range map[string][2]string{
		"bus is empty": {"", "com.example"}, `source ""`: {"default", ""}, `source "aws.orders"`: {"default", "aws.orders"},
	} {
		_, err := New(c, args[0], args[1])
		require.ErrorContains(t, err, says)
	}
	for _, none := range []Client{nil, (*eventbridge.Client)(nil)} {
		_, err := New(none, "default", "com.example")
		require.ErrorContains(t, err, "client is nil")
	}
}

// Whatever may be published fits into an event: what was committed can be sent.
func TestWhatIsPublishedFits(t *testing.T) {
	s, err := New(client("http://127.0.0.1:1"), "default", strings.Repeat("s", 256))
	require.NoError(t, err)
	for name, fill := range map[string]func(*outbox.Message, int){
		"plain text": func(m *outbox.Message, n int) { m.Body = []byte(strings.Repeat("x", n)) },
		"bytes":      func(m *outbox.Message, n int) { m.Body = make([]byte, n) },
		"json":       func(m *outbox.Message, n int) { m.Body = []byte(`"` + strings.Repeat("x", n) + `"`) },
		"json with line separator": func(m *outbox.Message, n int) {
			m.Body = []byte(`"` + strings.Repeat("\u2028", n/3) + `"`)
		},
		"an attribute in quotes": func(m *outbox.Message, n int) { m.Attributes["a"] = strings.Repeat(`"`, n) },
		"an attribute of lines":  func(m *outbox.Message, n int) { m.Attributes["a"] = strings.Repeat("\u2028", n/3) },
		"a content type of quotes": func(m *outbox.Message, n int) {
			m.Body, m.ContentType = []byte(strings.Repeat("x", n)), strings.Repeat(`"`, 256)
		},
	} {
		sizes := func(t *testing.T, limit int) {
			of := func(n int) outbox.Message {
				m := outbox.Message{Limit: limit, Destination: "orders", Type: strings.Repeat("t", outbox.MaxType),
					Body: []byte("{}"), Attributes: map[string]string{}}
				for _, a := range []string{"b", "c", "d", "e", "f"} {
					m.Attributes[a] = "v"
				}
				fill(&m, n)
				return m
			}
			// The largest of its kind that may be published.
			n := 1 + sort.Search(limit, func(n int) bool {
				m := of(n + 2)
				return m.Check() != nil
			})
			require.Greater(t, n, 40<<10)
			m := of(n)
			require.NoError(t, m.Check())
			m.ID = outbox.MessageID("r", time.Now(), "0")
			require.LessOrEqual(t, s.size(&m), limit, "%d", n)
		}
		t.Run(name, func(t *testing.T) {
			sizes(t, outbox.DefaultLimit)
			sizes(t, outbox.MaxLimit)
		})
	}
}
