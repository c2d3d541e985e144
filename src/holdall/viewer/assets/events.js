// What a user does on a page, each event once and in order: see holdall/viewer/events.py.
(() => {
    let made = null, count = 0, events = [];

    function report(element, name, detail) {
        const page = element.closest('[data-events]');
        if (!page) return;
        if (made !== page.dataset.made) [made, count, events] = [page.dataset.made, 0, []];
        count += 1;
        events = [...events.slice(-199), [count, name, detail]];
        window.dash_clientside.set_props(page.dataset.events, {data: events});
    }

    // A plot takes listeners some time after its figure was sent.
    function watchPlot(id, event, name, detail, answer) {
        const place = document.getElementById(id), plot = place && place.querySelector('.js-plotly-plot');
        if (!plot || !plot.on) {
            if (place) setTimeout(() => watchPlot(id, event, name, detail, answer), 50);
        } else if (!plot.holdallWatched) {
            plot.holdallWatched = true;
            plot.on(event, happened => {
                report(plot, name, detail(happened));
                return answer;
            });
        }
    }

    document.addEventListener('click', event => {
        const button = event.target.closest('button[data-event]');
        if (button) report(button, button.dataset.event, null);
        const cell = event.target.closest('.ag-cell[col-id]'), row = cell && cell.closest('[row-id]');
        if (row) report(cell, 'cell', [row.getAttribute('row-id'), cell.getAttribute('col-id')]);
    });
    document.addEventListener('input', event => { event.target.holdallEdited = true; });
    for (const kind of ['keydown', 'focusout']) {
        document.addEventListener(kind, event => {
            const field = event.target, label = field.matches('input') && field.closest('[data-event]');
            if (label && (kind === 'focusout' ? field.holdallEdited : event.key === 'Enter')) {
                field.holdallEdited = false;
                report(label, label.dataset.event, field.value);
            }
        });
    }
    window.holdallWatchPlot = watchPlot;
})();
