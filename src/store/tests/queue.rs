use super::*;

fn impatient(store: &Store) -> Store {
    let Backend::Sqlite(database) = &store.backend;
    Store { backend: Backend::Sqlite(database.impatient()) }
}

async fn occupy(store: &Store) -> std::sync::mpsc::SyncSender<()> {
    let Backend::Sqlite(database) = &store.backend;
    database.occupy().await
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_a_timeout_and_the_call_is_withdrawn() {
    let fixture = Fixture::new();
    let release = occupy(&fixture.store).await;
    let new = NewPerson { login: login("alice"), role: role(), gateway: None };
    assert!(matches!(impatient(&fixture.store).add_person(new).await, Err(StoreError::Timeout)));
    drop(release);
    assert!(fixture.store.list_people().await.unwrap().is_empty(), "nobody waits for it any more");
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let fixture = Fixture::new();
    let release = occupy(&fixture.store).await;
    let hurried = impatient(&fixture.store);
    let mut timed_out = 0;
    let outcome = loop {
        match hurried.ping().await {
            Err(StoreError::Timeout) if timed_out < 1_000 => timed_out += 1,
            other => break other,
        }
    };
    assert!(matches!(outcome, Err(StoreError::Busy)), "{outcome:?}");
    drop(release);
    fixture.store.ping().await.unwrap();
}
