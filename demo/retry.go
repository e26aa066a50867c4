// retry URL PATH STATEMENT: run an SQL statement in a transaction under a lock.
//
// This is the loop that an application needs around such a transaction, with pgx.
// Copy runLocked and tryLocked into yours.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The transaction did nothing, and may succeed if it is tried again.
var atOnce = map[string]bool{
	"ZK001": true, // the lock was lost, or is in doubt
	"40P01": true, // deadlock detected
	"40001": true, // serialization failure
}

// ZooKeeper cannot be reached.
var later = map[string]bool{"08006": true}

// PostgreSQL cannot be reached, or is starting (57P03), so nothing was done.
var errNoConnection = errors.New("no connection")

// ZK002, the lease time is over, is in neither: the work would take too long again.

var errNotGranted = errors.New("the lock was not granted in time")

// runLocked does the work in a transaction that holds the lock. If the connection breaks
// while the transaction commits, the outcome is unknown, and runLocked returns the error:
// only the caller knows whether the work may be done twice.
func runLocked(ctx context.Context, url, path string, timeout time.Duration, attempts int,
	work func(pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := tryLocked(ctx, url, path, timeout, work)

		// The error of a connection that breaks is no PgError.
		var refused *pgconn.PgError
		code := "no connection"
		if errors.As(err, &refused) {
			code = refused.Code
		}
		wait := later[code] || errors.Is(err, errNoConnection)
		if attempt == attempts || !wait && !atOnce[code] {
			return err
		}
		fmt.Fprintf(os.Stderr, "attempt %d failed with %s\n", attempt, code)
		if wait {
			longest := time.Minute
			if attempt < 6 {
				longest = time.Second << attempt
			}
			select {
			case <-time.After(time.Duration(rand.Int63n(int64(longest)))):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// tryLocked is one attempt. A loss may end the connection, so each attempt has its own.
func tryLocked(ctx context.Context, url, path string, timeout time.Duration, work func(pgx.Tx) error) error {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("%w: %v", errNoConnection, err)
	}
	defer connection.Close(ctx)

	tx, err := connection.Begin(ctx)
	if err != nil {
		return err
	}
	var granted bool
	if err := tx.QueryRow(ctx, "SELECT zk_xact_lock_acquire($1, $2)", path, timeout).Scan(&granted); err != nil {
		return err
	}
	if !granted {
		return errNotGranted
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func main() {
	ctx := context.Background()
	err := runLocked(ctx, os.Args[1], os.Args[2], 30*time.Second, 5, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, os.Args[3])
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
