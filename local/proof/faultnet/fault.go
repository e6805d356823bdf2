package faultnet

import "time"

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
