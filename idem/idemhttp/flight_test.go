package idemhttp

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// With waiting on, a duplicate gets the first request's response. It never waits past
// the deadline, nor until the gateway gives up.
func TestDuplicateWaits(t *testing.T) {
	const takes = 20 * time.Second
	for name, row := range map[string]struct {
		wait          time.Duration
		gateway, kill time.Duration // from the duplicate's begin; 0 for none
		end           Response      // of the first request
		want          int           // the duplicate's status
		least, most   time.Duration // it waited
	}{
		"off":                         {want: 409},
		"on":                          {wait: time.Minute, want: 201, least: takes, most: takes + time.Second},
		"too short":                   {wait: 5 * time.Second, want: 409, least: 4 * time.Second, most: 5 * time.Second},
		"REST API":                    {wait: time.Minute, gateway: 29 * time.Second, want: 201, least: takes, most: takes + time.Second},
		"gateway gives up":            {wait: time.Minute, gateway: 10 * time.Second, want: 409, least: 7 * time.Second, most: 8 * time.Second},
		"gateway has given up":        {wait: time.Minute, gateway: -time.Second, want: 409},
		"killed":                      {wait: time.Minute, kill: 10 * time.Second, want: 409, least: 6 * time.Second, most: 8 * time.Second},
		"killed later, gateway first": {wait: time.Minute, kill: time.Minute, gateway: 10 * time.Second, want: 409, least: 7 * time.Second, most: 8 * time.Second},
		"a failure is replayed":       {wait: time.Minute, end: Response{Status: 422}, want: 422, least: takes, most: takes + time.Second},
		"the duplicate's turn":        {wait: time.Minute, end: Response{Status: 429}, want: 200, least: takes, most: takes + time.Second},
		"an open question":            {wait: time.Minute, end: Response{Status: 500}, want: 409, least: takes, most: takes + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := idem.New(memory(), &idem.Options{Wait: row.wait})
				require.NoError(t, err)
				c, err := New(e, AnyRoute(charge), SingleTenant, nil)
				require.NoError(t, err)
				first := make(chan *Response, 1)
				go func() {
					res, _ := c.Serve(t.Context(), payment(), func(context.Context) (*Response, error) {
						time.Sleep(takes)
						if row.end.Status != 0 {
							return &row.end, nil
						}
						return created(), nil
					})
					first <- res
				}()
				synctest.Wait()

				start, ctx, r := time.Now(), t.Context(), payment()
				if row.gateway != 0 {
					r.GatewayDeadline = start.Add(row.gateway)
				}
				if row.kill != 0 {
					ctx = idem.WithKillTime(ctx, start.Add(row.kill))
				}
				n := 0
				duplicate, err := c.Serve(ctx, r, counting(&n, &Response{Status: 200}))
				require.NoError(t, err)
				waited := time.Since(start)
				require.Equal(t, row.want, duplicate.Status)
				require.GreaterOrEqual(t, waited, row.least)
				require.LessOrEqual(t, waited, row.most)
				require.Equal(t, row.want == 200, n == 1)
				live := <-first
				if row.want == 201 {
					require.Equal(t, live.Body, duplicate.Body)
					require.Equal(t, "true", duplicate.Headers[HeaderReplayed])
				}
			})
		})
	}
}

// Any number of identical requests at the same moment: one execution, and all get
// the same bytes.
func TestDuplicatesAtTheSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := idem.New(memory(), &idem.Options{Wait: time.Minute})
		require.NoError(t, err)
		c, err := New(e, AnyRoute(charge), SingleTenant, nil)
		require.NoError(t, err)
		n := 0 // one execution, or a race
		answers := make(chan *Response)
		for range 16 {
			go func() {
				res, err := c.Serve(t.Context(), payment(), func(context.Context) (*Response, error) {
					n++
					time.Sleep(time.Second)
					return created(), nil
				})
				if err != nil {
					t.Error(err)
				}
				answers <- res
			}()
		}
		live := 0
		for range 16 {
			res := <-answers
			require.Equal(t, created().Body, res.Body)
			require.Equal(t, 201, res.Status)
			if _, again := res.Headers[HeaderReplayed]; !again {
				live++
			}
		}
		require.Equal(t, 1, live)
		require.Equal(t, 1, n)
	})
}

// A key belongs to its request as soon as that runs: another body is refused as reused, not
// as in progress, and runs nothing.
func TestOtherBodyWhileTheFirstRequestRuns(t *testing.T) {
	c := newContract(t, memory())
	n := 0
	var other *Response
	first := serve(t, c, payment(), func(context.Context) (*Response, error) {
		other = serve(t, c, payment(func(r *Request) { r.Body = []byte(`{"amount":1}`) }), counting(&n, created()))
		return created(), nil
	})
	require.Equal(t, 201, first.Status)
	require.Equal(t, 422, other.Status)
	var p Problem
	require.NoError(t, json.Unmarshal(other.Body, &p))
	require.Equal(t, CodeKeyReused, p.Code)
	require.Zero(t, n)
}
