package idemhttp_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
)

// webhook fulfils each paid order once. It verifies the signature before the event's id becomes a key:
// a forged event with the id of a real one must not take that.
func webhook(engine *idem.Engine, secret []byte, fulfil func(ctx context.Context, order string) (string, error),
) http.HandlerFunc {
	op := idem.Operation{Name: "fulfil", Repeat: idem.Repeatable, Watch: idem.WatchAlways}
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
		if err != nil || !signed(body, r.Header.Get("Stripe-Signature"), secret) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var event struct {
			ID   string
			Data struct{ Object struct{ Order string } }
		}
		if err := json.Unmarshal(body, &event); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		// The input is what the work needs. Other members of the event differ between deliveries.
		key := op.Key(idem.SingleTenant, event.ID)
		if _, err := idem.Do(r.Context(), engine, key, event.Data.Object.Order, fulfil); err != nil {
			w.WriteHeader(http.StatusInternalServerError) // the provider sends the event again
		}
	}
}

// signed verifies Stripe's scheme: t=seconds,v1=HMAC-SHA256 of "seconds.body", at most five minutes old.
func signed(body []byte, header string, secret []byte) bool {
	stamp, rest, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",v1=")
	given, err := hex.DecodeString(rest)
	var at int64
	if _, scanErr := fmt.Sscan(stamp, &at); err != nil || scanErr != nil {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s", stamp, body)
	return hmac.Equal(mac.Sum(nil), given) && time.Since(time.Unix(at, 0)).Abs() < 5*time.Minute
}

func Example_webhook() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := webhook(engine, []byte("whsec_1"), func(_ context.Context, order string) (string, error) {
		fmt.Println("shipped", order)
		return "shipment of " + order, nil
	})
	deliver := func(secret string, pending int) {
		body := fmt.Sprintf(`{"id":"evt_1","data":{"object":{"order":"o-7"}},"pending_webhooks":%d}`, pending)
		at := time.Now().Unix()
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%d.%s", at, body)
		r := httptest.NewRequest("POST", "/stripe", strings.NewReader(body))
		r.Header.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%x", at, mac.Sum(nil)))
		w := httptest.NewRecorder()
		h(w, r)
		fmt.Println(w.Code)
	}
	deliver("forged", 2)
	deliver("whsec_1", 2)
	deliver("whsec_1", 1)
	// Output:
	// 400
	// shipped o-7
	// 200
	// 200
}
