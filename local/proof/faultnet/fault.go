package faultnet

import (
	"time"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// Fault does to a call what the network does instead of passing it on.
type Fault func(*Call) (*Reply, error)

// LoseRequest breaks the connection before the service gets the call.
func LoseRequest(*Call) (*Reply, error) { return nil, ErrReset }

// LoseReply breaks the connection when the service has answered.
func LoseReply(c *Call) (*Reply, error) {
	_, _ = c.Pass() // its reply goes to no caller
	return nil, ErrReset
}

// Hang loses the call in silence: no reply comes while the client waits.
func Hang(c *Call) (*Reply, error) {
	<-c.Context().Done()
	return nil, c.Context().Err()
}

// Delay brings the call to the service late, while the client waits for the reply.
func Delay(d time.Duration) Fault {
	return func(c *Call) (*Reply, error) {
		<-time.After(d)
		return c.Pass()
	}
}

// LoseAndArrive breaks the connection at once; the call arrives late all the same.
func LoseAndArrive(d time.Duration) Fault {
	return func(c *Call) (*Reply, error) {
		c.Later(func() { _, _ = Delay(d)(c) }) // its reply goes to no caller
		return nil, ErrReset
	}
}

// KillBefore kills the process before the service gets its call.
func KillBefore(kill func(*Call)) Fault {
	return func(c *Call) (*Reply, error) {
		kill(c)
		return nil, ErrReset
	}
}

// KillAfter kills the process when the service has answered, before it gets the reply.
func KillAfter(kill func(*Call)) Fault {
	return func(c *Call) (*Reply, error) {
		_, _ = c.Pass() // its reply goes to no caller
		kill(c)
		return nil, ErrReset
	}
}

// KillWith kills the process while the reply is on its way.
func KillWith(kill func(*Call)) Fault {
	return func(c *Call) (*Reply, error) {
		r, err := c.Pass()
		c.Later(func() { kill(c) })
		return r, err
	}
}

// Caller kills the instance of a pool that made a call or, where the call does not say,
// one at work.
func Caller(pool *runtime.Pool) func(*Call) {
	return func(c *Call) {
		pid := c.PID
		if pid == 0 {
			at := pool.InFlight()
			if len(at) == 0 {
				return
			}
			pid = at[c.Number%len(at)].PID
		}
		_ = pool.Kill(pid) // it may have been killed over another call
	}
}
