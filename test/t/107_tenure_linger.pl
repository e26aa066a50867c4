
# How long a server keeps a ticket: while others wait (tenure), and while no backend wants it
# (linger).

use strict;
use warnings;

use Time::HiRes qw(usleep);

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.linger' => 0, 'zklock.tenure' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my %node = (a => $node_a, b => $node_b);
my %backend = map { my $name = $_; $name => $node{ substr $name, 0, 1 }->backend } qw(a1 a2 a3 a4 b1 b2 b3);

# The two parts of a token.
sub ticket_of { my ($backend, $path) = @_; return $backend->query("SELECT zk_lock_token('$path') / 65536"); }
sub number_of { my ($backend, $path) = @_; return $backend->query("SELECT zk_lock_token('$path') % 65536"); }

sub set_everywhere
{
	my ($name, $value) = @_;
	foreach my $node ($node_a, $node_b)
	{
		$node->configure("zklock.$name" => $value);
		$node->reload;
	}
	$_->wait_until("SELECT current_setting('zklock.$name') = '$value'") foreach values %backend;
	return;
}

# Let these backends queue in this order, the first one being the holder.
sub line_up
{
	my ($path, $holder, @waiters) = @_;
	my %waiting;

	is($backend{$holder}->query(acquire($path)), 't', "$path: $holder holds");
	foreach my $name (@waiters)
	{
		my $node = $node{ substr $name, 0, 1 };
		$backend{$name}->send(acquire($path));
		$node->wait_for_waiter($path, ++$waiting{ $node->name });
	}
	$zk->wait_for_children("/zklock$path", 2);
	return;
}

# The holder releases, then the next holder releases, and so on.  Each holder first waits until its
# server knows that the other server queues, if it does.
sub run_through
{
	my ($path, $holder, @waiters) = @_;
	my @order;
	my %ticket;

	while (1)
	{
		my $mine = substr $holder, 0, 1;
		push @{ $ticket{$mine} }, join ':', ticket_of($backend{$holder}, $path), number_of($backend{$holder}, $path);
		$node{$mine}->wait_until_contended($path) if grep { !/^$mine/ } @waiters;
		$backend{$holder}->query(release($path));
		last unless @waiters;

		my @done;
		$zk->wait_until(sub { @done = grep { $backend{$_}->is_done } @waiters }, 'the next holder');
		is(scalar(@done), 1, "$path: one has it");
		($holder) = @done;
		is($backend{$holder}->result->{out}, 't', "$path: $holder");
		push @order, $holder;
		@waiters = grep { $_ ne $holder } @waiters;
	}
	$zk->wait_for_children("/zklock$path", 0);
	return (\@order, \%ticket);
}

# --- tenure ---

my ($order, $tickets);

line_up('/tenure0', qw(a1 a2 a3 b1 b2));
($order, $tickets) = run_through('/tenure0', qw(a1 a2 a3 b1 b2));
is("@$order", 'b1 a2 b2 a3', 'no tenure: servers take turns');
is_deeply([ map { /:(\d+)/ } map { @$_ } values %$tickets ], [ 1, 1, 1, 1, 1 ],
	'no tenure: a ticket for each claim');

set_everywhere('tenure', '1h');
line_up('/tenure1', qw(a1 a2 b1 b2 a3));
($order, $tickets) = run_through('/tenure1', qw(a1 a2 b1 b2 a3));
is("@$order", 'a2 a3 b1 b2', 'a long tenure: first all of one server, then all of the other');
my ($of_a, $of_b) = map { $tickets->{$_} } 'a', 'b';
my ($first) = $of_a->[0] =~ /^(\d+):/;
is_deeply($of_a, [ map { "$first:$_" } 1 .. 3 ], 'a long tenure: one ticket, claims counted');
($first) = $of_b->[0] =~ /^(\d+):/;
is_deeply($of_b, [ map { "$first:$_" } 1 .. 2 ], 'a long tenure: the same for the other server');

# The tenure ends, and then the other server has its turn, however many backends wait here.
set_everywhere('tenure', '1s');
line_up('/tenure2', qw(a1 a2 b1));
$node_a->wait_until(q{SELECT bool_and(contended AND owned_since < now() - interval '1s')
	FROM zk_locks WHERE path = '/tenure2'});
($order) = run_through('/tenure2', qw(a1 a2 b1));
is("@$order", 'b1 a2', 'tenure is over');

# Without other clients in the queue, the tenure does not matter.
set_everywhere('tenure', '0');
$backend{a1}->query(acquire('/tenure3'));
my $ticket = ticket_of($backend{a1}, '/tenure3');
$backend{a2}->send(acquire('/tenure3'));
$node_a->wait_for_waiter('/tenure3', 1);
$backend{a1}->query(release('/tenure3'));
is($backend{a2}->result->{out}, 't', 'alone: handed on');
is(ticket_of($backend{a2}, '/tenure3'), $ticket, 'alone: with the same ticket');
is(number_of($backend{a2}, '/tenure3'), 2, 'alone: the second claim of it');
$backend{a2}->query(release('/tenure3'));
$zk->wait_for_children('/zklock/tenure3', 0);

# A client of another kind that queues counts as another server.
my $znode;
$backend{a1}->query(acquire('/tenure4'));
$backend{a2}->send(acquire('/tenure4'));
$node_a->wait_for_waiter('/tenure4', 1);
$znode = $zk->create('/zklock/tenure4/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-',
	ephemeral => 1, sequence => 1);
$node_a->wait_until_contended('/tenure4');
$backend{a1}->query(release('/tenure4'));
$zk->wait_for_children('/zklock/tenure4', sub { @{ $_[0] } == 2 && $znode =~ /\Q${\(first_of($_[0]))}\E$/ });
ok(!$backend{a2}->is_done, 'a foreign client has its turn');
$zk->delete($znode);
is($backend{a2}->result->{out}, 't', 'and gives it back');
$backend{a2}->query(release('/tenure4'));

sub first_of
{
	my ($children) = @_;
	return (sort { substr($a, -10) cmp substr($b, -10) } @$children)[0];
}

# --- linger ---

set_everywhere('linger', '1h');
my $a1 = $backend{a1};
my $b1 = $backend{b1};

sub use_once
{
	my ($backend, $path) = @_;
	$backend->query(acquire($path));
	my @token = (ticket_of($backend, $path), number_of($backend, $path));
	$backend->query(release($path));
	return @token;
}

sub tickets_made { return $node_a->status('tickets'); }

my @first = use_once($a1, '/linger');
is($first[1], 1, 'a lock that is used once: the first claim');
is(scalar(@{ $zk->wait_for_children('/zklock/linger', 0) }), 0, 'a lock that is used once is deleted at once');
$node_a->wait_until_clean('/linger');

my @second = use_once($a1, '/linger');
cmp_ok($second[0], '>', $first[0], 'it came back: a new ticket');
is($second[1], 1, 'it came back: the first claim again');
is($node_a->safe_psql('postgres', q{SELECT ticket, claim IS NULL, contended FROM zk_locks WHERE path = '/linger'}),
	'lingering|t|f', 'it came back: now it lingers');
is(scalar(@{ $zk->children('/zklock/linger') }), 1, 'it came back: its znode is there');

my $made = tickets_made();
my $requests = $node_a->status('requests');
my @third = use_once($a1, '/linger');
my @fourth = use_once($backend{a2}, '/linger');
is("@third", "$second[0] 2", 'lingering: the same ticket, the next claim');
is("@fourth", "$second[0] 3", 'lingering: for any backend');
is(tickets_made(), $made, 'lingering: no new ticket');
cmp_ok($node_a->status('requests') - $requests, '<=', 1, 'lingering: ZooKeeper is not asked, but for the watch on the znode');
is($node_a->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0',
	'lingering: no advisory lock');

# A server remembers the releases of many locks that come back.
my $use_many = q{DO $$ BEGIN FOR i IN 1 .. 300 LOOP FOR n IN 1 .. %d LOOP
	PERFORM zk_lock_acquire('/many/' || i); PERFORM zk_lock_release('/many/' || i); END LOOP; END LOOP; END $$};
$a1->query(sprintf $use_many, $_) foreach 2, 1;
$node_a->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path ~ '^/many/' AND ticket <> 'lingering'});
is($node_a->safe_psql('postgres', q{SELECT count(*) FROM zk_locks WHERE path ~ '^/many/'}), '300',
	'many locks that come back: all linger');

# Other servers do not have to wait until the ticket's linger time has passed.
is($b1->query(acquire('/linger', '1min')), 't', 'the other server has it at once');
$node_a->wait_until_clean('/linger');
is(scalar(@{ $zk->children('/zklock/linger') }), 1, 'the lingering ticket is gone');
cmp_ok(ticket_of($b1, '/linger'), '>', $second[0], 'a greater token');
$b1->query(release('/linger'));

use_once($a1, '/linger2') foreach 1 .. 2;
is($node_a->safe_psql('postgres', q{SELECT ticket FROM zk_locks WHERE path = '/linger2'}),
	'lingering', 'a lock lingers');
$b1->wait_until(try('/linger2'));
is($b1->query(q{SELECT zk_lock_is_held('/linger2')}), 't', 'the other server gets it even by a try, which is repeated');
$b1->query(release('/linger2'));

# A contended ticket does not linger.
use_once($a1, '/linger3') foreach 1 .. 2;
$a1->query(acquire('/linger3'));
$b1->send(acquire('/linger3', '1min'));
$node_a->wait_until_contended('/linger3');
$a1->query(release('/linger3'));
is($b1->result->{out}, 't', 'a contended ticket does not linger');
$b1->query(release('/linger3'));

# A transaction-level lock lingers as well.
$a1->query(q{BEGIN; SELECT zk_xact_lock_acquire('/linger4'); COMMIT}) foreach 1 .. 2;
is($node_a->safe_psql('postgres', q{SELECT ticket FROM zk_locks WHERE path = '/linger4'}),
	'lingering', 'transaction scope');

# A lingering ticket stands in no backend's way in the same server.
is($backend{a3}->query(q{BEGIN; SELECT zk_xact_lock_acquire('/linger4', '0'); ROLLBACK}), 't',
	'another backend takes it over by a try');

# Lingering ends when its time has passed.
set_everywhere('linger', '400ms');
use_once($a1, '/linger5') foreach 1 .. 3;
$node_a->wait_until_clean('/linger5');
is(scalar(@{ $zk->wait_for_children('/zklock/linger5', 0) }), 0, 'lingering ends');

# With linger off, the server gives up even a lock that comes back.
set_everywhere('linger', '0');
use_once($a1, '/linger6') foreach 1 .. 3;
$node_a->wait_until_clean('/linger6');
is(scalar(@{ $zk->wait_for_children('/zklock/linger6', 0) }), 0, 'no linger');

# --- a ticket is renewed before the number of its claims would overflow ---

set_everywhere('linger', '1h');
$a1->query(q{
	CREATE PROCEDURE use_often(path text, times int) LANGUAGE plpgsql AS $$
	DECLARE
		last bigint := 0;
		token bigint;
	BEGIN
		FOR i IN 1 .. times LOOP
			PERFORM zk_lock_acquire(path);
			token := zk_lock_token(path);
			IF token <= last THEN
				RAISE 'token % after %, at %', token, last, i;
			END IF;
			last := token;
			PERFORM zk_lock_release(path);
		END LOOP;
	END $$});
$made = tickets_made();
is($a1->run(q{CALL use_often('/often', 66000)})->{err}, '', 'tokens grow from claim to claim');
cmp_ok(tickets_made() - $made, '>=', 2, 'the ticket was renewed');
cmp_ok(tickets_made() - $made, '<=', 4, 'but not more often than it needs');

$_->quit foreach values %backend;
$_->stop foreach $node_a, $node_b;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
