
# The link to ZooKeeper is slow: each reply takes a while, or few bytes a second come.

use strict;
use warnings;

use HoldingProxy;
use ZklockTest;

my $zk = ZooKeeper->new;
sub sessions { return scalar(() = $zk->cmd('dump') =~ /^\s+0x/mg); }

# --- each reply comes later than a connect to one of eleven addresses may take at first ---

my $proxy = HoldingProxy->new($zk->hosts, addresses => 11);
$proxy->delay(1);
$zk->create('/zklock');
my $before = sessions();
my $node = ZklockNode->initialized('a', undef, 'zklock.hosts' => $proxy->address,
	'zklock.session_timeout' => '20s', 'zklock.connection_timeout' => '1min');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
my $holder = $node->backend;
is($holder->run(acquire('/held', '1min'))->{out}, 't', 'a server connects');
is(sessions() - $before, 1, '... and leaves no other session behind');

my ($session, $connects) = split /\|/, $node->status('session_id, connects');
$proxy->cut;
ok($node->poll_query_until('postgres', "SELECT connects > $connects AND safe FROM zk_status"), 'a lost connection comes back');
is($node->status('session_id, connects'), "$session|" . ($connects + 1), '... with the same session, at the first reconnect');
is($holder->run(held('/held'))->{out}, 't', '... and the lock');
$proxy->delay(0);

# --- a list comes in many small pieces, and signs of life wait behind it ---

# A quarter of the session timeout is 3 s, and the list takes more than 4 s.
$node->set_session_timeout($zk, '12s');
$zk->create_many('/zklock/crowd', 8000);
my $other = $node->backend;
$connects = $node->status('connects');
my $expirations = $node->status('expirations');
$other->query(acquire('/other'));
$proxy->limit(15_000, 40);
is($holder->run(acquire('/crowd', '1min'))->{out}, 't', 'the lock of a large directory can be had');
is($node->status('connects'), $connects, '... and the connection stays');
is($other->run(held('/other'))->{out}, 't', '... and other locks stay');

# --- a list takes longer than half of the session timeout ---

$holder->query(release('/crowd'));
$node->wait_until(q{SELECT count(*) = 0 FROM zk_locks WHERE path = '/crowd'});
$proxy->limit(7_000, 40);
my $result = $holder->run(acquire('/crowd', '1min'));
is($result->{errcode}, '54000', 'a directory that is too large for the link: an error');
like($result->{err}, qr/could not acquire lock "\/crowd".*takes longer than half the session timeout/s, '... which says so');
is($other->errcode(q{SELECT count(*) FROM zk_lock_queue('/crowd')}), '54000', '... and one for its queue');
$node->wait_until_connected;
is($node->status('connects') - $connects, 2, '... each of which costs a connection, once');
is($node->status('expirations'), $expirations, '... and not the session');
is($other->query(acquire('/another')), 't', '... and other locks can be had');
$proxy->limit(0);
$_->quit foreach $holder, $other;
$node->stop;

# --- a request that ends each connection ---

my $spoils = HoldingProxy->new($zk->hosts, spoil => sub { my ($how, $type) = @_; return $how eq 'always' && $type =~ /^(8|12)$/ ? pack('N', 4) . 'none' : undef; });
$node->configure('zklock.hosts' => $spoils->address, 'zklock.session_timeout' => '30s');
$node->start;
$node->wait_until_connected;
$other = $node->backend;
is($other->query(q{SELECT count(*) FROM zk_lock_queue('/crowd')}), 0, 'a queue is read');
$connects = $node->status('connects');
$spoils->spoil('always');
$other->query(q{SET statement_timeout = '30s'});
is($other->errcode(q{SELECT count(*) FROM zk_lock_queue('/crowd')}), '08006', 'a queue that ends each connection: an error');
$node->wait_until("SELECT connects >= $connects + 5 FROM zk_status");
is($node->status('connects') - $connects, 5, '... after a few connections');
$spoils->spoil('never');
$other->query('RESET statement_timeout');
is($other->query(acquire('/crowd')), 't', '... and locks can be had');
$other->quit;
$node->stop;
done_testing();
