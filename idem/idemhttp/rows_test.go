package idemhttp_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	"github.com/idem-go/idempotency/idem/testenv/contract/contracttest"
)

// Every row of the contract, in both profiles, around a handler of net/http. Such a handler returns no error.
func TestContract(t *testing.T) {
	tenant := idemhttp.FromRequest(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil })
	contracttest.InProcess(t, func(e *idem.Engine, o *idemhttp.Options, p *contracttest.Play) contracttest.Client {
		c, err := idemhttp.New(e, contract.Routes(), tenant, o)
		require.NoError(t, err)
		h := c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := p.Run()
			require.NoError(t, a.Do(r.Context()))
			for name, values := range a.Header {
				w.Header()[name] = values
			}
			w.WriteHeader(a.Status)
			_, _ = w.Write(a.Body)
		}), nil)
		return func(t *testing.T, r contract.Request) (got contracttest.Reply) {
			sent := httptest.NewRequest(r.Method, r.Path, strings.NewReader(r.Body))
			sent = sent.WithContext(idem.WithKillTime(t.Context(), time.Now().Add(time.Minute)))
			sent.Header = r.Header.Clone()
			sent.Header.Set("X-Tenant", r.Tenant)
			w := httptest.NewRecorder()
			defer func() {
				if recover() != nil {
					got = contracttest.Reply{Failed: true}
				}
			}()
			h.ServeHTTP(w, sent)
			return contracttest.Reply{Status: w.Code, Header: w.Header(), Body: w.Body.String()}
		}
	}, "error", "error, repeatable", "permanent error", "error, not executed", "error, not executed, repeatable")
}

// Each code of the contract is in the table, or among the situations of TestRefusals.
func TestEveryCodeIsProvoked(t *testing.T) {
	provoked := map[idemhttp.Code]bool{}
	for _, r := range contract.Rows() {
		for _, w := range []contract.Want{r.First, r.Second} {
			if w.Code != "" {
				provoked[w.Code] = true
			}
		}
	}
	for _, code := range idemhttp.Situations() {
		provoked[code] = true
	}
	require.ElementsMatch(t, idemhttp.Codes(), slices.Collect(maps.Keys(provoked)))
}
