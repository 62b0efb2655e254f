package queue

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// laterBatches are the writes of a batcher in which odd entries wait for company.
// rounds are what arrives during each write.
func laterBatches(t *testing.T, rounds ...[]int) (batches [][]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		b := doubler(func(ctx context.Context, batch []int) ([]int, error) {
			batches = append(batches, slices.Clone(batch))
			<-gate
			return double(ctx, batch)
		})
		b.later = func(n *int) bool { return *n%2 == 1 }
		want, answered := 0, 0
		for i, r := range rounds {
			for _, n := range r {
				want++
				b.submit(t.Context(), n, func(got int, err error) {
					if answered++; err != nil || got != 2*n {
						t.Errorf("%d was answered %d, %v", n, got, err)
					}
				})
			}
			synctest.Wait()
			if i > 0 {
				gate <- struct{}{}
				synctest.Wait()
			}
		}
		close(gate)
		if err := b.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if answered != want {
			t.Errorf("%d of %d entries were answered", answered, want)
		}
	})
	return batches
}

func TestAnEndWaitsForCompanyWhileStepsAreWritten(t *testing.T) {
	for _, c := range []struct {
		name   string
		rounds [][]int
		want   [][]int
	}{
		{"a few wait", [][]int{{0}, {1, 2, 3, 4}, {6}, {}}, [][]int{{0}, {2, 4}, {6}, {1, 3}}},
		{"nothing else is to be written", [][]int{{0}, {1, 3}, {2}}, [][]int{{0}, {1, 3}, {2}}},
		{"not for ever", [][]int{{0}, {1, 2}, {4}, {6}, {8}, {10}}, [][]int{{0}, {2}, {4}, {6}, {1, 8}, {10}}},
		{"many do not", [][]int{{0}, {2, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}, {}}, [][]int{{0}, {2, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := laterBatches(t, c.rounds...)
			if !slices.EqualFunc(got, c.want, slices.Equal[[]int]) {
				t.Errorf("writes are %v, want %v", got, c.want)
			}
		})
	}
}
