
# A worker stands still between two steps, and something happens meanwhile.  Needs servers with
# fault points (make FAULTS=1).

use strict;
use warnings;

use ZklockTest qw(!acquire);

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '60s',
	'zklock.connection_timeout' => '3min',
	'zklock.linger' => '1h');

# Run this, which leads the worker to a point; returns the worker, which stands still there.
sub stop_worker
{
	my ($node, $point, $lead) = @_;
	$node->arm($point);
	$lead->();
	return $node->at_point($point);
}

# --- leases: one looks for all whether another server waits.  It is given up after the watch
# has fired and before it has looked ---

my ($node_a, $node_b) = map { ZklockNode->started($_, $zk, %settings) } qw(a b);
my ($a1, $a2, $b1) = map { $_->backend } $node_a, $node_a, $node_b;

sub acquire { my ($quantity, $timeout) = @_; return "SELECT zk_semaphore_acquire('/two', 2, '$timeout', $quantity)"; }
my $release = q{SELECT zk_semaphore_release('/two')};

# a1 holds the lease that looks.  The lease of a2 would linger if the server had not heard that a
# client waits.
$a1->query(acquire(1, '1min'));
my $looks = $zk->children('/zklock/two/leases')->[0];
$a2->query($_) foreach acquire(1, '1min'), $release;
$zk->wait_for_children('/zklock/two/leases', 1);
$a2->query(acquire(1, '1min'));

my $worker = stop_worker($node_a, 'lease-to-look', sub { $b1->send(acquire(2, '20s')); });
is($a1->query($release), 't', 'the one that would have looked is released');
kill 'CONT', $worker;
$zk->wait_for_children('/zklock/two/leases', sub { my ($names) = @_; return @$names == 3 && !grep { $_ eq $looks } @$names; });
$a2->query($release);
is($b1->answer, 't', 'the other one hears that a client waits');

$_->quit foreach $a1, $a2, $b1;
$_->stop foreach $node_a, $node_b;

# --- safe until passes while the worker publishes the next one: the backend that has found the
# doubt is woken ---

my $node_c = ZklockNode->started('c', $zk, %settings, 'zklock.session_timeout' => '15s');
my ($c1, $c2) = map { $node_c->backend } 1, 2;
$c1->query(q{SELECT zk_lock_acquire('/doubt')});

# The first heartbeats may follow one another closely.
$c2->wait_until('SELECT heartbeats > 3 FROM zk_stat');
$worker = stop_worker($node_c, 'proof-noted', sub { });
$c2->wait_until('SELECT NOT safe FROM zk_status');
$c1->send(q{CALL zk_lock_wait('/doubt')});
$c2->wait_until('SELECT wait_event_type IS NOT NULL AND state = $$active$$ AND backend_xmin IS NULL FROM pg_stat_activity WHERE pid = ' . $c1->pid);
pass('it waits without a snapshot');
my $before = $c2->query('SELECT heartbeats FROM zk_stat');
kill 'CONT', $worker;
$c2->wait_until("SELECT heartbeats > $before + 3 FROM zk_stat");
ok($c1->is_done, 'the backend that found a doubt goes on when it is over');
is($c1->result->{errcode}, '', 'and has the lock');
$_->quit foreach $c1, $c2;
$node_c->stop;
done_testing();
