
# The limit of a semaphore changes while the worker of another server stands still or fails
# between two steps: no list that is newer than the change grants beyond it.  Needs servers with
# fault points (make FAULTS=1).

use strict;
use warnings;

use ZklockTest qw(!acquire !release);

my $zk = ZooKeeper->new;
my ($node_a, $node_b) = map {
	ZklockNode->started($_, $zk, 'zklock.session_timeout' => '60s', 'zklock.connection_timeout' => '3min',
		'zklock.linger' => '1h')
} qw(a b);
my ($a1, $b1, $b2) = map { $_->backend } $node_a, $node_b, $node_b;

sub acquire { my ($path, $timeout) = @_; return "SELECT zk_semaphore_acquire('$path', NULL, " . (defined $timeout ? "'$timeout'" : 'NULL') . ')'; }
sub release { my ($path) = @_; return "SELECT zk_semaphore_release('$path')"; }
sub set_limit { my ($path, $n) = @_; return "SELECT zk_semaphore_set_limit('$path', $n)"; }
sub leases { my ($path) = @_; return "/zklock$path/leases"; }

# Run this, which leads the worker of b to a point, where this action is taken.  Returns the
# process, which stands still if it is to stop.
sub lead_to
{
	my ($point, $action, $lead) = @_;
	$node_b->arm($point, $action);
	$lead->();
	return $node_b->at_point($point);
}

# --- the worker has read the limit, and not yet the list ---

$a1->query(set_limit('/read', 2));
$a1->query(acquire('/read', '0'));
my $worker = lead_to('limit-read', 'stop', sub { $b1->send(acquire('/read', '1min')); });
$a1->query(set_limit('/read', 1));
kill 'CONT', $worker;

# That list grants.  But the worker may hear of the change before the backend takes the lease.
my $is_granted;
$zk->wait_until(
	sub {
		$is_granted = $b1->is_done;
		return $is_granted || $b2->query(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/read' AND ticket = 'queued'}) eq 't';
	}, 'b to have a lease, or to wait for one');
if ($is_granted)
{
	is($b1->answer, 't', 'lowered after the list: that list still grants');
	$node_b->wait_until(q{SELECT bool_and(contended) FROM zk_locks WHERE path = '/read' AND granted});
	$b1->query(release('/read'));
	is($b1->query(acquire('/read', '0')), 'f', 'but no later one');
	$b1->send(acquire('/read', '1min'));
}
$a1->query(release('/read'));
is($b1->answer, 't', 'one is free');
$b1->query(release('/read'));

# --- ... and fails there ---

$a1->query(set_limit('/fails', 2));
$a1->query(acquire('/fails', '0'));
lead_to('limit-read', 'fail', sub { $b1->send(acquire('/fails', '1min')); });
is($b1->answer, 't', 'the next worker reads it again');
$a1->query(set_limit('/fails', 1));
$node_b->wait_until(q{SELECT bool_and(contended) FROM zk_locks WHERE path = '/fails' AND granted});
$b1->query(release('/fails'));
is($b1->query(acquire('/fails', '0')), 'f', 'and hears of changes');
$a1->query(release('/fails'));

# --- the worker hears that the limit has been lowered ---

$a1->query(set_limit('/lowered', 2));
foreach (1 .. 3)
{
	$_->query(acquire('/lowered', '1min')) foreach $b1, $b2;
	$_->query(release('/lowered')) foreach $b1, $b2;
}
is(scalar(@{ $zk->children(leases('/lowered')) }), 2, 'two leases linger');
$worker = lead_to('limit-changed', 'stop', sub { $a1->query(set_limit('/lowered', 0)); });
is($b1->query(acquire('/lowered', '1min')), 't', 'a lease of an older list is granted until the worker goes on');
kill 'CONT', $worker;
$zk->wait_for_children(leases('/lowered'), 1);
is($b2->query(acquire('/lowered', '0')), 'f', 'the other one is given up');
$b1->query(release('/lowered'));
$zk->wait_for_children(leases('/lowered'), 0);
is($b1->query(acquire('/lowered', '0')), 'f', 'and so is that, when it is released');

# --- ... or raised, twice ---

$b1->send(acquire('/lowered'));
$node_b->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/lowered' AND ticket = 'queued'});
$worker = lead_to('limit-changed', 'stop', sub { $a1->query(set_limit('/lowered', 1)); });
$a1->query(set_limit('/lowered', 0));
kill 'CONT', $worker;
$zk->wait_until(sub { $b2->query(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/lowered' AND ticket = 'queued'}) eq 't' }, 'the waiter to have listed again');
ok(!$b1->is_done, 'raised and lowered before the worker has read it: no grant');
$a1->query(set_limit('/lowered', 1));
is($b1->answer, 't', 'raised again');

# --- ... and fails there ---

$b1->query(release('/lowered'));
is($a1->query(acquire('/lowered', '1min')), 't', 'the other server has it');
$b2->send(acquire('/lowered'));
$node_b->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/lowered' AND ticket = 'queued'});
lead_to('limit-changed', 'fail', sub { $a1->query(set_limit('/lowered', 2)); });
is($b2->answer, 't', 'the next worker finds the raised limit');

$_->quit foreach $a1, $b1, $b2;
$_->stop foreach $node_a, $node_b;
done_testing();
