package queuetest

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
)

// deaf loses the first reply to each kind of call, after the server has acted.
type deaf struct {
	*http.Transport
	lost map[string]bool
}

func (d *deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	reply, err := d.Transport.RoundTrip(r)
	if op := r.Header.Get("X-Amz-Target"); err == nil && !d.lost[op] {
		d.lost[op] = true
		_ = reply.Body.Close()
		return nil, errors.New("connection reset")
	}
	return reply, err
}

func TestDrainReturnsEachMessageOnceAlthoughRepliesAreLost(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprintf("fifo %v", fifo), func(t *testing.T) {
			t.Parallel()
			q, want := Full(t, fifo, 13)
			require.Equal(t, 13, Held(t, q.Client, q.URL))
			lossy := &deaf{Transport: &http.Transport{}, lost: map[string]bool{}}
			t.Cleanup(lossy.CloseIdleConnections)
			options := q.Client.Options()
			options.HTTPClient = &http.Client{Transport: lossy}
			options.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
			var got []string
			for _, m := range Drain(t, sqs.New(options), q.URL) {
				got = append(got, *m.Body)
			}
			require.ElementsMatch(t, want, got)
			require.Equal(t, map[string]bool{
				"AmazonSQS.ReceiveMessage": true, "AmazonSQS.DeleteMessageBatch": true, "AmazonSQS.GetQueueAttributes": true,
			}, lossy.lost)
			require.Zero(t, Held(t, q.Client, q.URL))
		})
	}
}
